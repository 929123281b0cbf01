package apitest_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/api.txt")

// TestAPI compares the exported API with testdata/api.txt, which has a line per
// symbol, field and method. A line that is missing or different breaks programs, and if a
// release has it, which testdata/api-v1.txt says, they were promised that it stays.
//
// The lines come from the source text, in the notation of Go's own api/*.txt. The
// export data that apidiff compares changes with the version of Go.
func TestAPI(t *testing.T) {
	const name = "../testdata/api.txt"
	got := slices.Concat(exported(t, ".."), exported(t, "../checkpoint"), exported(t, "../dcp"), exported(t, "../hub"), exported(t, "../quant"), exported(t, "../remote"), exported(t, "../torch"))
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(strings.Join(got, "\n")+"\n"), 0o666))
	}
	released, want := lines(t, "../testdata/api-v1.txt"), lines(t, name)
	require.Empty(t, broken(released, got), "a release promises these lines, and the interfaces as they are: this takes a new major version")
	require.Empty(t, without(want, got), "missing or changed: this breaks programs; CONTRIBUTING.md says how to do it")
	require.Empty(t, without(got, want), "new; if it is to stay: go test ./apitest -run TestAPI -update")
}

func lines(t *testing.T, name string) []string {
	t.Helper()
	return strings.Split(strings.TrimSuffix(string(must(os.ReadFile(name))), "\n"), "\n")
}

// broken returns the lines of a release that got does not have, and those of got that add a
// method to an interface of the release, which types outside of this repository implement.
func broken(released, got []string) []string {
	missing := without(released, got)
	for _, line := range without(got, released) {
		if name, _, member := strings.Cut(line, " interface, "); member && slices.Contains(released, name+" interface") {
			missing = append(missing, line)
		}
	}
	return missing
}

// TestAPIPromise breaks the promise of a release in each way.
func TestAPIPromise(t *testing.T) {
	released := []string{"pkg p, func F(int) int", "pkg p, type I interface", "pkg p, type I interface, M()", "pkg p, type S struct"}
	added := []string{"pkg p, func G()", "pkg p, type J interface", "pkg p, type J interface, N()", "pkg p, type S struct, Field int"}
	require.Empty(t, broken(released, released))
	require.Empty(t, broken(released, slices.Concat(released, added)))
	for i, line := range released {
		require.Equal(t, []string{line}, broken(released, slices.Delete(slices.Clone(released), i, i+1)), "removed")
	}
	require.Equal(t, released[:1], broken(released, append([]string{"pkg p, func F(int64) int"}, released[1:]...)), "changed")
	method := "pkg p, type I interface, N()"
	require.Equal(t, []string{method}, broken(released, append([]string{method}, released...)), "implementations lack it")
}

// without returns the lines of a that b does not have.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
}

// exported returns the exported API of the package in a folder, sorted. Files of
// all systems count.
func exported(t *testing.T, folder string) []string {
	t.Helper()
	names := must(filepath.Glob(filepath.Join(folder, "*.go")))
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			files = append(files, must(parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)))
		}
	}
	// The values of constants need no imports, so that errors do not matter.
	checked, _ := (&types.Config{Error: func(error) {}}).Check(folder, fset, files, nil)
	l := lister{pkg: "pkg " + files[0].Name.Name + ", ", values: checked.Scope()}
	for _, file := range files {
		for _, decl := range file.Decls {
			l.decl(decl)
		}
	}
	slices.Sort(l.lines)
	return slices.Compact(l.lines) // an unexported symbol of two systems adds none
}

// A lister collects the lines of a package.
type lister struct {
	pkg    string
	values *types.Scope
	lines  []string
}

func (l *lister) add(format string, args ...any) {
	l.lines = append(l.lines, l.pkg+fmt.Sprintf(format, args...))
}

func (l *lister) decl(decl ast.Decl) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		switch {
		case !d.Name.IsExported():
		case d.Recv == nil:
			l.add("func %s%s", d.Name, signature(d.Type))
		case ast.IsExported(strings.TrimLeft(text(d.Recv.List[0].Type), "*")):
			l.add("method (%s) %s%s", text(d.Recv.List[0].Type), d.Name, signature(d.Type))
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				l.typeSpec(s)
			case *ast.ValueSpec:
				l.valueSpec(d.Tok, s)
			}
		}
	}
}

// valueSpec lists constants with their values. The type of a variable is listed
// where it is written.
func (l *lister) valueSpec(tok token.Token, s *ast.ValueSpec) {
	for _, name := range s.Names {
		if !name.IsExported() {
			continue
		}
		line := fmt.Sprintf("%s %s", tok, name)
		if c, ok := l.values.Lookup(name.Name).(*types.Const); ok {
			line += fmt.Sprintf(" %s = %s", types.TypeString(c.Type(), types.RelativeTo(c.Pkg())), c.Val().ExactString())
		} else if s.Type != nil {
			line += " " + text(s.Type)
		}
		l.add("%s", line)
	}
}

// typeSpec lists a type, and each field of a struct and each element of an
// interface. Unexported fields are no promise; unexported methods of an interface
// keep others from implementing it.
func (l *lister) typeSpec(s *ast.TypeSpec) {
	if !s.Name.IsExported() {
		return
	}
	name := s.Name.Name
	if s.TypeParams != nil {
		name += strings.TrimSuffix(signature(&ast.FuncType{TypeParams: s.TypeParams, Params: new(ast.FieldList)}), "()")
	}
	var members *ast.FieldList
	kind := ""
	switch typ := s.Type.(type) {
	case *ast.StructType:
		kind, members = "struct", typ.Fields
	case *ast.InterfaceType:
		kind, members = "interface", typ.Methods
	default:
		kind = text(typ)
		if s.Assign.IsValid() {
			kind = "= " + kind
		}
	}
	l.add("type %s %s", name, kind)
	if members == nil {
		return
	}
	for _, f := range members.List {
		if len(f.Names) == 0 {
			l.add("type %s %s, %s", name, kind, text(f.Type))
		}
		for _, member := range f.Names {
			switch method, ok := f.Type.(*ast.FuncType); {
			case kind == "interface" && ok:
				l.add("type %s interface, %s%s", name, member, signature(method))
			case member.IsExported():
				l.add("type %s struct, %s %s", name, member, text(f.Type))
			}
		}
	}
}

// signature returns the type of a func, without the word.
func signature(f *ast.FuncType) string { return strings.TrimPrefix(text(f), "func") }

// text returns a type on one line. The parameters of funcs have no names, which are no
// promise.
func text(x ast.Expr) string {
	ast.Inspect(x, func(n ast.Node) bool {
		if f, ok := n.(*ast.FuncType); ok {
			f.Params, f.Results = unnamed(f.Params), unnamed(f.Results)
		}
		return true
	})
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), x); err != nil { // without positions there are no line breaks
		panic(err)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

// unnamed returns parameters without their names.
func unnamed(list *ast.FieldList) *ast.FieldList {
	if list == nil {
		return nil
	}
	out := new(ast.FieldList)
	for _, f := range list.List {
		for range max(1, len(f.Names)) {
			out.List = append(out.List, &ast.Field{Type: f.Type})
		}
	}
	return out
}

// around makes a Go file of some lines, which may use its parameters.
const around = `package readme

import (
	"context"
	"io"
	"io/fs"
	"maps"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/gosafetensors/safetensors/torch"
	"github.com/gosafetensors/safetensors/remote"
)

var _ = []any{maps.Collect[string, int], safetensors.Open, checkpoint.Open, dcp.Open, hub.Open, quant.Open, remote.Open, torch.Open}

func _(ctx context.Context, f *safetensors.File, rank, ranks int, parts []safetensors.Tensor, shape []int,
	merge func([]float32) error, url string, fsys fs.FS, r io.ReaderAt, size int64) {
	%s
	%s
}
`

// TestReadme compiles the Go of the README: a program as it is, lines as the body of a
// func, which then uses the variables that they define.
func TestReadme(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllSubmatch(must(os.ReadFile("../README.md")), -1)
	require.Greater(t, len(blocks), 3)
	root := must(filepath.Abs(".."))
	// The files are in folders of the module that exist for the compiler only.
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	arguments := []string{"build", "-o", os.DevNull, "-overlay", filepath.Join(t.TempDir(), "overlay.json")}
	for i, block := range blocks {
		source := string(block[1])
		if !strings.HasPrefix(source, "package ") {
			source = fmt.Sprintf(around, source, useOf(t, source))
		}
		file := filepath.Join(t.TempDir(), "main.go")
		require.NoError(t, os.WriteFile(file, []byte(source), 0o666))
		folder := fmt.Sprint("readme", i)
		overlay.Replace[filepath.Join(root, folder, "main.go")] = file
		arguments = append(arguments, "./"+folder)
	}
	require.NoError(t, os.WriteFile(arguments[4], must(json.Marshal(overlay)), 0o666))
	command := exec.Command("go", arguments...)
	command.Dir = root
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
}

// useOf returns an assignment that uses the variables that some lines define.
func useOf(t *testing.T, lines string) string {
	file := must(parser.ParseFile(token.NewFileSet(), "", "package p; func _() {\n"+lines+"}", 0))
	var defined []string
	ast.Inspect(file, func(n ast.Node) bool {
		if a, ok := n.(*ast.AssignStmt); ok && a.Tok == token.DEFINE {
			for _, x := range a.Lhs {
				defined = append(defined, x.(*ast.Ident).Name)
			}
		}
		return true
	})
	return "_ = []any{" + strings.Join(defined, ", ") + "}"
}
