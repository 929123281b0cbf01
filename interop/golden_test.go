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
			test := func(kind string, inMemory bool, f *safetensors.File, err error) {
				t.Run(kind, func(t *testing.T) {
					require.NoError(t, err)
					requireFile(t, f, want, inMemory)
					requireSameWhenWritten(t, f, data)
					require.NoError(t, f.Close())
				})
			}
			f, err := safetensors.Parse(data)
			test("Parse", true, f, err)
			f, err = safetensors.Load(name)
			test("Load", true, f, err)
			f, err = safetensors.Open(name)
			test("Open", testplatform.Maps, f, err)
			f, err = safetensors.NewFile(bytes.NewReader(data), int64(len(data)))
			test("NewFile", false, f, err)
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
