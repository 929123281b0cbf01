package main

import (
	"bytes"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// writeModel writes a file that is hard to list: it has a scalar, a tensor without elements,
// elements of four bits, and names and metadata that are not printable.
func writeModel(t *testing.T, name string) {
	tensors := make(map[string]safetensors.Tensor)
	add := func(name string, dtype safetensors.DType, shape []int, size int) {
		var err error
		tensors[name], err = safetensors.NewTensor(dtype, shape, make([]byte, size))
		require.NoError(t, err)
	}
	add("embeddings.weight", safetensors.F32, []int{1024, 3}, 12288)
	add("scale", safetensors.F32, nil, 4)
	add("layer.0.packed", safetensors.F4, []int{3, 2}, 3)
	add("empty", safetensors.BF16, []int{0, 7}, 0)
	add("\x1b[31mred\n", safetensors.U8, []int{1}, 1)
	require.NoError(t, safetensors.WriteFile(name, tensors, map[string]string{
		"format": "pt",
		"tab":    "a\tb" + strings.Repeat("never ends ", 10),
	}))
}

// TestInspect: the output is the same for a file, a directory and a URL. Names that are not
// printable are quoted.
func TestInspect(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModel(t, "model.safetensors")
	server := httptest.NewServer(http.FileServer(http.Dir(".")))
	defer server.Close()
	for _, name := range []string{"model.safetensors", ".", server.URL + "/model.safetensors"} {
		var out bytes.Buffer
		require.NoError(t, inspect(&out, name))
		require.Equal(t, `
"embeddings.weight"                                F32 [1024,3]              12288 bytes
"scale"                                            F32 []                        4 bytes
"empty"                                            BF16 [0,7]                    0 bytes
"\x1b[31mred\n"                                    U8 [1]                        1 bytes
"layer.0.packed"                                   F4 [3,2]                      3 bytes

parameters
F4                     6
U8                     1
BF16                   0
F32                 3073

metadata
"format": "pt"
"tab": "a\tbnever ends never ends never ends never ends never ends never ends never ends "
`, "\n"+out.String())
	}
	require.ErrorIs(t, inspect(io.Discard, "absent"), fs.ErrNotExist)
	require.ErrorIs(t, inspect(io.Discard, server.URL+"/absent"), fs.ErrNotExist)
}
