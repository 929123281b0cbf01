package internal_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mostInCircle is the largest number of files of a package that may refer to each other in a
// circle, because whoever changes one of them has to read all of them.
const mostInCircle = 4

// TestCircles makes the graph of the files of each package by means of the type checker. A file
// refers to another one if it uses a func, a type, a variable, a method or a field that is declared
// there.
func TestCircles(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip(err)
	}
	packages := listPackages(t)
	exports := func(path string) (io.ReadCloser, error) { return os.Open(packages[path].Export) }
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", exports)
	for _, folder := range public {
		p := packages[strings.TrimSuffix(repository+"/"+folder, "/.")]
		require.NotEmpty(t, p.GoFiles, folder)
		var files []*ast.File
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			files = append(files, file)
		}
		uses := make(map[*ast.Ident]types.Object)
		pkg, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, files, &types.Info{Uses: uses})
		require.NoError(t, err)
		largest := largestCircle(fset, pkg, uses)
		require.LessOrEqual(t, len(largest), mostInCircle, "%s: these files refer to each other in a circle: %v", folder, largest)
	}
}

// A listedPackage is a package in the output of go list.
type listedPackage struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// listPackages compiles the public packages and those that they import, and returns them by their
// import paths.
func listPackages(t *testing.T) map[string]listedPackage {
	arguments := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"}
	for _, folder := range public {
		arguments = append(arguments, "./"+folder)
	}
	command := exec.Command("go", arguments...)
	command.Dir = ".."
	output, err := command.Output()
	require.NoError(t, err)
	packages := make(map[string]listedPackage)
	for d := json.NewDecoder(bytes.NewReader(output)); d.More(); {
		var p listedPackage
		require.NoError(t, d.Decode(&p))
		packages[p.ImportPath] = p
	}
	return packages
}

// largestCircle returns the files of the largest circle of a package, in order.
func largestCircle(fset *token.FileSet, pkg *types.Package, uses map[*ast.Ident]types.Object) (largest []string) {
	reaches := make(map[[2]string]bool) // whether a file refers to another one, directly or through other files
	files := make(map[string]bool)
	for id, o := range uses {
		// Fields and methods have no parent.
		if o.Pkg() != pkg || o.Parent() != nil && o.Parent() != pkg.Scope() {
			continue
		}
		from, to := filepath.Base(fset.Position(id.Pos()).Filename), filepath.Base(fset.Position(o.Pos()).Filename)
		reaches[[2]string{from, to}] = true
		files[from], files[to] = true, true
	}
	for via := range files {
		for from := range files {
			for to := range files {
				if reaches[[2]string{from, via}] && reaches[[2]string{via, to}] {
					reaches[[2]string{from, to}] = true
				}
			}
		}
	}
	for from := range files {
		circle := []string{from}
		for to := range files {
			if to != from && reaches[[2]string{from, to}] && reaches[[2]string{to, from}] {
				circle = append(circle, to)
			}
		}
		if slices.Sort(circle); len(circle) > len(largest) {
			largest = circle
		}
	}
	return largest
}
