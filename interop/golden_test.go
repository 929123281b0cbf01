// Package interop_test compares what the module reads and writes with golden files,
// with numpy and with the Python packages.
package interop_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestGolden opens every golden file in every way and writes it again.
func TestGolden(t *testing.T) {
	text := must(os.ReadFile("../testdata/golden/expected.json"))
	var golden []goldenFile
	require.NoError(t, json.Unmarshal(text, &golden))
	requireAllListed(t, golden)

	for _, want := range golden {
		t.Run(want.File, func(t *testing.T) {
			name := filepath.Join("..", "testdata", filepath.FromSlash(want.File))
			data := must(os.ReadFile(name))

			t.Run("ReadHeader", func(t *testing.T) { requireHeader(t, data, want) })
			for way, open := range map[string]func() (*safetensors.File, error){
				"Parse":   func() (*safetensors.File, error) { return safetensors.Parse(data) },
				"Load":    func() (*safetensors.File, error) { return safetensors.Load(name) },
				"Open":    func() (*safetensors.File, error) { return safetensors.Open(name) },
				"NewFile": func() (*safetensors.File, error) { return safetensors.NewFile(bytes.NewReader(data), int64(len(data))) },
			} {
				t.Run(way, func(t *testing.T) {
					f := must(open())
					requireFile(t, f, want)
					for _, x := range f.Tensors() {
						view, err := safetensors.View[byte](x)
						viewable := x.Len() == 0 || way != "NewFile" && (way != "Open" || testplatform.Maps)
						require.Equal(t, viewable, err == nil)
						require.True(t, err != nil || bytes.Equal(view, must(safetensors.Append[byte](nil, x))))
					}
					requireSameWhenWritten(t, f, data)
					require.NoError(t, f.Close())
				})
			}
		})
	}
}

// requireAllListed fails if a golden file or a dtype is missing from the list.
func requireAllListed(t *testing.T, golden []goldenFile) {
	t.Helper()
	found := must(filepath.Glob("../testdata/golden/*.safetensors"))
	found = append(found, filepath.Join("..", "testdata", "model.safetensors"))
	var listed []string
	dtypes := map[safetensors.DType]bool{}
	for _, g := range golden {
		listed = append(listed, filepath.Join("..", "testdata", filepath.FromSlash(g.File)))
		for _, tensor := range g.Tensors {
			dtypes[tensor.DType] = true
		}
	}
	require.ElementsMatch(t, listed, found)
	require.ElementsMatch(t, slices.Collect(safetensors.DTypes()), slices.Collect(maps.Keys(dtypes)))
}
