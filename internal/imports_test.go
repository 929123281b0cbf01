// Package internal_test keeps the walls between the packages of the module.
package internal_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/gosafetensors/safetensors"

// A wall says which packages the packages in a folder may import besides the
// standard library. The first one that has the folder counts.
type wall struct {
	folder string   // in the module; a final /... stands for all folders in it
	own    []string // folders of this module
	others []string // packages of other modules
}

// walls has no entry for commands, examples and benchmarks, which may import
// anything.
var walls = []wall{
	{".", []string{"internal/..."}, []string{"golang.org/x/exp/mmap", "golang.org/x/sys/..."}},
	{"remote", []string{".", "internal/parallel", "internal/prefix", "internal/transport"}, nil},
	{"hub", []string{".", "remote", "internal/prefix", "internal/transport"}, nil},
	{"dcp", []string{".", "internal/jsonscan", "internal/parallel", "internal/prefix"}, nil},
	{"quant", []string{".", "internal/dequant", "internal/float", "internal/mem", "internal/parallel", "internal/prefix"}, nil},
	{"internal/transport", nil, nil},
	{"internal/...", nil, []string{"golang.org/x/sys/..."}},
}

// TestImports checks the imports of all files but tests, for every system. The
// packages under internal/ know nothing of tensors and nothing of each other;
// net/http stays out of programs that use neither package remote nor package hub.
func TestImports(t *testing.T) {
	imports := importsOf(t, "..")
	for _, folder := range []string{".", "remote", "hub", "dcp", "internal/float", "internal/parallel"} {
		require.NotEmpty(t, imports[folder], folder)
	}
	for folder, paths := range imports {
		i := slices.IndexFunc(walls, func(w wall) bool { return matches(w.folder, folder) })
		if i < 0 {
			continue
		}
		t.Run(folder, func(t *testing.T) {
			for _, p := range paths {
				require.True(t, walls[i].allows(p), "imports %q", p)
			}
		})
	}
}

// allows reports whether packages inside the wall may import p.
func (w wall) allows(p string) bool {
	in := func(patterns []string, p string) bool {
		return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p) })
	}
	first, _, _ := strings.Cut(p, "/")
	switch {
	case p == module:
		return in(w.own, ".")
	case p == module+"/internal/testplatform":
		return false // it is for tests
	case strings.HasPrefix(p, module+"/"):
		return in(w.own, strings.TrimPrefix(p, module+"/"))
	case strings.Contains(first, "."):
		return in(w.others, p)
	}
	return first != "net" || slices.Contains([]string{"remote", "hub", "internal/transport"}, w.folder)
}

// matches reports whether a pattern stands for a path.
func matches(pattern, p string) bool {
	parent, all := strings.CutSuffix(pattern, "/...")
	return p == pattern || all && strings.HasPrefix(p, parent+"/")
}

// importsOf returns the import paths of all packages of the module in folder root,
// by their folder.
func importsOf(t *testing.T, root string) map[string][]string {
	t.Helper()
	imports := make(map[string][]string)
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			_, err := os.Stat(filepath.Join(name, "go.mod"))
			if name != root && (err == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		folder = filepath.ToSlash(folder)
		for _, spec := range file.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			imports[folder] = append(imports[folder], p)
		}
		return nil
	})
	require.NoError(t, err)
	return imports
}
