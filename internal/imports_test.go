// Package internal_test checks rules for the whole repository, such as which packages may import
// which.
package internal_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const repository = "github.com/gosafetensors/safetensors"

// A wall lists the packages that the packages in a directory may import, besides the standard
// library. The first wall that matches the directory applies.
type wall struct {
	folder string   // directory in the repository; a final /... stands for that directory and all directories below it
	own    []string // directories of this repository
	others []string // packages of other modules
}

var (
	public     = []string{".", "remote", "hub", "dcp", "quant", "torch", "checkpoint"} // packages that every program can import
	everything = []string{"..."}
)

var walls = []wall{
	{".", []string{"internal/..."}, []string{"golang.org/x/exp/mmap", "golang.org/x/sys/..."}},
	{"remote", []string{".", "internal/parallel", "internal/prefix", "internal/shapetext", "internal/transport", "internal/variant"}, nil},
	{"hub", []string{".", "remote", "internal/osfile", "internal/prefix", "internal/shapetext", "internal/transport", "internal/variant"}, nil},
	{"torch", []string{".", "internal/mem", "internal/osfile", "internal/parallel", "internal/pickle", "internal/prefix", "internal/rankfile", "internal/shapetext", "internal/stride", "internal/torchtype", "internal/variant", "internal/zipfile"}, nil},
	{"dcp", []string{".", "torch", "internal/jsonscan", "internal/osfile", "internal/parallel", "internal/pickle", "internal/prefix", "internal/rankfile", "internal/shapetext", "internal/torchtype", "internal/variant"}, nil},
	{"quant", []string{".", "internal/dequant", "internal/float", "internal/lazyregexp", "internal/mem", "internal/modelconfig", "internal/osfile", "internal/parallel", "internal/prefix", "internal/pyjson", "internal/shapetext", "internal/tensorname", "internal/torchtype", "internal/variant"}, nil},
	{"checkpoint", []string{".", "dcp", "quant", "torch", "internal/lazyregexp", "internal/modelconfig", "internal/osfile", "internal/parallel", "internal/prefix", "internal/pyjson", "internal/shapetext", "internal/tensorname", "internal/torchtype", "internal/variant"}, nil},
	{"internal/rankfile", []string{".", "internal/pickle"}, nil}, // connects torch and dcp
	{"internal/stride", []string{"internal/mem"}, nil},           // for addresses
	{"internal/...", nil, []string{"golang.org/x/sys/..."}},
	{"cmd/...", append([]string{"cmd/...", "internal/lazyregexp", "internal/mem", "internal/modelconfig", "internal/osfile", "internal/parallel", "internal/pyjson", "internal/shapetext", "internal/tensorname", "internal/torchtype", "internal/variant", "internal/zipfile"}, public...), everything},
	{"examples/...", append([]string{"examples/..."}, public...), everything},
	{"bench/...", append([]string{"bench/...", "examples/..."}, public...), everything},
	{"difftest/...", append([]string{"difftest/...", "internal/parallel"}, public...), everything},
	{"mutate/...", nil, []string{"golang.org/x/sync/errgroup"}},
}

// web lists the directories of the packages that may import net and net/http, so that programs that
// only read files do not contain these.
var web = []string{"remote", "hub", "internal/transport", "cmd/...", "examples/...", "bench/...", "difftest/..."}

// TestImports checks the imports of all files except tests, in every module and for every system.
// The compiler would let every package of the repository import internal packages.
func TestImports(t *testing.T) {
	imports := importsOf(t, "..", func(name string) bool { return !isTest(name) })
	for _, folder := range []string{".", "remote", "hub", "dcp", "quant", "torch", "checkpoint", "internal/float", "cmd/safetensors", "cmd/safetensors/internal/source", "bench/cmd/bench", "difftest"} {
		require.NotEmpty(t, imports[folder], folder)
	}
	for folder, paths := range imports {
		t.Run(folder, func(t *testing.T) {
			i := slices.IndexFunc(walls, func(w wall) bool { return matches(w.folder, folder) })
			require.GreaterOrEqual(t, i, 0, "no wall says what this package may import")
			for _, p := range paths {
				require.True(t, walls[i].allows(folder, p), "imports %q", p)
			}
		})
	}
}

// unsafeFiles are the files that import unsafe. SECURITY.md lists the same files.
var unsafeFiles = []string{"internal/mem/mem.go", "internal/mem/physical_windows.go", "mmap_windows.go"}

// TestUnsafe: no other file of any module imports unsafe, not even a test. The library imports
// nothing that can run or load a program.
func TestUnsafe(t *testing.T) {
	all := func(string) bool { return true }
	var found []string
	for name, file := range goFiles(t, "..", parser.ImportsOnly, all) {
		first, _, _ := strings.Cut(name, "/")
		program := isTest(name) || first == "cmd" || slices.Contains(programs, first) || strings.HasPrefix(name, "internal/testplatform/")
		for _, spec := range file.Imports {
			switch p, _ := strconv.Unquote(spec.Path.Value); p {
			case "unsafe":
				found = append(found, name)
			case "os/exec", "plugin":
				require.True(t, program, "%s imports %s", name, p)
			}
		}
	}
	require.ElementsMatch(t, unsafeFiles, found)
	text, err := os.ReadFile("../SECURITY.md")
	require.NoError(t, err)
	for _, name := range unsafeFiles {
		require.Contains(t, string(text), "`"+name+"`")
	}
}

// TestImportsOfInternalTests: tests of internal packages do not import the root package either.
func TestImportsOfInternalTests(t *testing.T) {
	tests := importsOf(t, ".", isTest)
	require.NotEmpty(t, tests["float"])
	for folder, paths := range tests {
		for _, p := range paths {
			p, ours := strings.CutPrefix(p, repository+"/")
			require.True(t, !ours && p != repository || p == "internal/testplatform" || p == "internal/"+folder, "%s imports %s", folder, p)
		}
	}
}

// TestInit: no package compiles a regular expression or parses a template before main. Every program
// that imports the package would pay for it, even if it uses neither.
func TestInit(t *testing.T) {
	slow := []string{"regexp.MustCompile", "template.Must"}
	files := goFiles(t, "..", parser.SkipObjectResolution, func(name string) bool {
		first, _, _ := strings.Cut(name, "/")
		return !isTest(name) && !slices.Contains(programs, first)
	})
	require.NotEmpty(t, files["cmd/safetensors/internal/report/report.go"])
	for name, file := range files {
		for _, d := range file.Decls {
			variables, ok := d.(*ast.GenDecl)
			if !ok {
				continue
			}
			ast.Inspect(variables, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					require.NotContains(t, slow, types.ExprString(call.Fun), "%s: use internal/lazyregexp or sync.OnceValue", name)
				}
				_, function := n.(*ast.FuncLit)
				return !function
			})
		}
	}
}

// allows reports whether the packages in a directory inside the wall may import p.
func (w wall) allows(folder, p string) bool {
	first, _, _ := strings.Cut(p, "/")
	switch own, ours := strings.CutPrefix(p, repository+"/"); {
	case p == repository:
		return slices.Contains(w.own, ".")
	case own == "internal/testplatform" && ours:
		return false // only tests may import it
	case ours:
		return anyMatches(w.own, own)
	case strings.Contains(first, "."):
		return anyMatches(w.others, p)
	}
	return first != "net" || anyMatches(web, folder)
}

func anyMatches(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p) })
}

// matches reports whether a pattern matches a path.
func matches(pattern, p string) bool {
	parent, all := strings.CutSuffix(pattern, "...")
	return p == pattern || all && strings.HasPrefix(p+"/", parent)
}

// importsOf returns the import paths in the Go files below the directory root, by their
// directories. It considers only files for whose names wanted returns true.
func importsOf(t *testing.T, root string, wanted func(name string) bool) map[string][]string {
	imports := make(map[string][]string)
	for name, file := range goFiles(t, root, parser.ImportsOnly, wanted) {
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			require.NoError(t, err, name)
			imports[path.Dir(name)] = append(imports[path.Dir(name)], p)
		}
	}
	return imports
}

// goFiles parses the Go files in the directory root, and in the directories below it, if wanted
// returns true for their names. These names are relative and slash-separated.
func goFiles(t *testing.T, root string, mode parser.Mode, wanted func(name string) bool) map[string]*ast.File {
	t.Helper()
	files := make(map[string]*ast.File)
	require.NoError(t, fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git"):
			return fs.SkipDir
		case !d.IsDir() && strings.HasSuffix(name, ".go") && wanted(name):
			files[name], err = parser.ParseFile(token.NewFileSet(), filepath.Join(root, name), nil, mode)
		}
		return err
	}))
	return files
}

// isTest reports whether a file holds tests, by its name.
func isTest(name string) bool { return strings.HasSuffix(name, "_test.go") }

// TestSteps: CONTRIBUTING.md lists what each step of CI proves, in the order of the steps.
func TestSteps(t *testing.T) {
	names := func(file, pattern string) (names []string) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range regexp.MustCompile(pattern).FindAllSubmatch(text, -1) {
			names = append(names, string(match[1]))
		}
		return names
	}
	steps := names("../.ci/steps", `(?m)^step (\S+) '`)
	require.NotEmpty(t, steps)
	require.Equal(t, steps, names("../CONTRIBUTING.md", "(?m)^\\| `([^`]+)` \\| .*\\S \\|$"))
}
