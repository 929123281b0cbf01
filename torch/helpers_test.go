package torch

import (
	"bytes"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// requireNames opens a pickle of a file, which has tensors of these names, or is an error.
func requireNames(t *testing.T, pickle, want string) {
	t.Helper()
	data := zipOf(t, "\x80\x02"+pickle+".")
	f, err := NewFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		require.ErrorContains(t, err, want)
		return
	}
	require.Equal(t, want, strings.Join(slices.Sorted(maps.Keys(maps.Collect(f.Tensors()))), " "))
}

// A held is what a file holds, with what Skip was told.
type held struct {
	tensors  map[string]safetensors.Tensor
	metadata map[string]string
	refused  map[string]error
}

// openAll opens a file, and leaves out what safetensors cannot hold.
func openAll(r io.ReaderAt, size int64, key string) (*held, error) {
	refused := make(map[string]error)
	f, err := Opener{Key: key, Skip: func(name string, why error) { refused[name] = why }}.NewFile(r, size)
	if err != nil {
		return nil, err
	}
	return &held{maps.Collect(f.Tensors()), f.Metadata(), refused}, nil
}

// requireSame compares tensors and metadata with those of a safetensors file: names,
// dtypes, shapes and bytes.
func requireSame(t *testing.T, file string, tensors map[string]safetensors.Tensor, metadata map[string]string) {
	t.Helper()
	f := must(safetensors.Load(file))
	require.Equal(t, f.Metadata(), metadata)
	want := maps.Collect(f.Tensors())
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(tensors)))
	for name, wanted := range want {
		got := tensors[name]
		require.Equal(t, wanted.String(), got.String(), name)
		a := must(safetensors.Append[byte](nil, wanted))
		b := must(safetensors.Append[byte](nil, got))
		require.Equal(t, a, b, name)
	}
}
