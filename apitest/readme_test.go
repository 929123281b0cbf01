package apitest_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// around makes a Go file of some lines, which may use its parameters.
const around = `package readme

import (
	"context"
	"io"
	"io/fs"
	"maps"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/gosafetensors/safetensors/torch"
	"github.com/gosafetensors/safetensors/remote"
)

var _ = []any{maps.Collect[string, int], safetensors.Open, dcp.Open, hub.Open, quant.Open, remote.Open, torch.Open}

func _(ctx context.Context, f *safetensors.File, rank, ranks int, shape []int,
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
