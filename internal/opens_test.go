package internal_test

import (
	"go/ast"
	"go/parser"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// opens lists the calls that open a file and would wait for a named pipe, by file and func, with
// the reason why each is allowed. All other code uses osfile.OpenRegular or, in the command,
// package localfile.
var opens = map[string]string{
	"internal/osfile/regular.go openNow":                     "does not wait",
	"internal/osfile/system.go osSystem.Create":              "a new file",
	"internal/osfile/system.go osSystem.OpenDir":             "a folder",
	"internal/osfile/lock_unix.go lockDir":                   "a folder",
	"internal/osfile/system_linux.go osSystem.CreateUnnamed": "a new file",
	"internal/mem/pages_linux.go init":                       "files of the system, whose names no stranger chooses",
	"internal/testplatform/testplatform.go emulated":         "a file of the system",
	"internal/testplatform/unnamed_linux.go HasUnnamedFiles": "a new file",
	"folder.go openUnmapped":                                 "systems without named pipes, after osfile.OpenRegular",

	"cmd/safetensors/internal/localfile/localfile.go OpenNamed": "waits no longer than its context, for the writer of a pipe that the command line names",
	"cmd/safetensors/internal/source/local.go nearEntry":        "a folder: its name ends in /., with which opening anything else fails",
	"cmd/safetensors/internal/dest/shared.go writeCopy":         "a new file",
	"cmd/safetensors/internal/dest/partial.go openPartial":      "a regular file or a new one: anything else with this name is removed first",
}

// programs lists directories of programs that only developers run, or copy code from.
var programs = []string{"examples", "bench", "difftest", "mutate"}

// TestOpens finds the calls that open files by their names, in all modules except those in
// programs.
func TestOpens(t *testing.T) {
	found := make(map[string]bool)
	for name, file := range goFiles(t, "..", parser.SkipObjectResolution, func(name string) bool {
		folder, _, _ := strings.Cut(name, "/")
		return !isTest(name) && !slices.Contains(programs, folder)
	}) {
		for _, decl := range file.Decls {
			if opensFile(decl) {
				found[name+" "+nameOf(decl)] = true
			}
		}
	}
	for call := range found {
		require.Contains(t, opens, call, "it opens a file by its name: would it wait for a named pipe?")
	}
	for call := range opens {
		require.Contains(t, found, call, "it opens no file by its name any more")
	}
}

// opensFile reports whether a declaration uses a func that opens a file by its name.
func opensFile(decl ast.Decl) (found bool) {
	ast.Inspect(decl, func(n ast.Node) bool {
		call, _ := n.(*ast.SelectorExpr)
		if call == nil {
			return true
		}
		if pkg, ok := call.X.(*ast.Ident); ok {
			switch pkg.Name + "." + call.Sel.Name {
			case "os.Open", "os.OpenFile", "os.ReadFile", "os.DirFS", "os.OpenRoot", "os.OpenInRoot", "os.CopyFS",
				"ioutil.ReadFile", "syscall.Open", "unix.Open", "unix.Openat", "xmmap.Open", "mmap.Open":
				found = true
			}
		}
		return true
	})
	return found
}

// nameOf returns the name of a func, after that of its receiver's type.
func nameOf(decl ast.Decl) string {
	f, ok := decl.(*ast.FuncDecl)
	if !ok {
		return "(declaration)"
	}
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	if generic, ok := typ.(*ast.IndexExpr); ok {
		typ = generic.X
	}
	return typ.(*ast.Ident).Name + "." + f.Name.Name
}
