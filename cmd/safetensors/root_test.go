package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// TestVerbs: only root.go and the files of the same verb refer to what the file of a verb declares.
// What several verbs need is in other files, so that a verb can be read, changed and removed alone.
func TestVerbs(t *testing.T) {
	files := make(map[string]*ast.File)
	for _, name := range must(filepath.Glob("*.go")) {
		if !strings.HasSuffix(name, "_test.go") {
			files[name] = must(parser.ParseFile(token.NewFileSet(), name, nil, 0))
		}
	}
	verbs := make(map[string]string) // maps what the file of a verb declares to the file
	for name, file := range files {
		if name != "root.go" && declaresVerb(file) {
			for _, declared := range declarations(file) {
				verbs[declared] = name
			}
		}
	}
	require.Equal(t, "cp.go", verbs["c.cp"])
	require.Equal(t, "merge.go", verbs["sumOf"])
	for name, file := range files {
		used := make(map[string]bool)
		for _, id := range file.Unresolved {
			used[id.Name] = true
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				used[types.ExprString(s)] = true
			}
			return true
		})
		for what := range used {
			verb := verbs[what]
			own := name == verb || strings.HasPrefix(name, strings.TrimSuffix(verb, ".go")+"_")
			require.True(t, verb == "" || own || name == "root.go", "%s uses %s of %s", name, what, verb)
		}
	}
}

// declaresVerb reports whether a file has a method that returns the command of a verb.
func declaresVerb(file *ast.File) bool {
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if ok && f.Recv != nil && f.Type.Params.NumFields() == 0 && f.Type.Results.NumFields() == 1 &&
			types.ExprString(f.Type.Results.List[0].Type) == "*cobra.Command" {
			return true
		}
	}
	return false
}

// declarations returns the names that a file declares: for methods, as they are called through a
// receiver of the same name, such as c.cp.
func declarations(file *ast.File) (names []string) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = d.Recv.List[0].Names[0].Name + "." + name
			}
			names = append(names, name)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name.Name)
				case *ast.ValueSpec:
					for _, id := range spec.Names {
						names = append(names, id.Name)
					}
				}
			}
		}
	}
	return names
}

// TestHelpTexts: a line of a help text has at most 90 characters, and each flag that it names is one of a verb.
func TestHelpTexts(t *testing.T) {
	root := new(command)
	root.opener = new(source.Opener)
	known := map[string]bool{"help": true, "version": true}
	all := root.whole()
	for _, cmd := range append(all.Commands(), all) {
		for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) { known[f.Name] = true })
		}
	}
	flag := regexp.MustCompile(`--([a-z][a-z-]*)`)
	for _, cmd := range all.Commands() {
		for line := range strings.Lines(cmd.Long) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), 90, line)
			for _, found := range flag.FindAllStringSubmatch(line, -1) {
				require.True(t, known[found[1]], "%s: %s", cmd.Name(), line)
			}
		}
	}
}
