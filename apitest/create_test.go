package apitest_test

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// createFile writes tensors with Create, pieces bytes in each Write.
func createFile(name string, tensors map[string]Tensor, piece int) error {
	h := &Header{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		h.Tensors = append(h.Tensors, TensorInfo{Name: name, DType: tensors[name].DType(), Shape: tensors[name].Shape()})
	}
	w, err := Create(name, h)
	if err != nil {
		return err
	}
	for _, info := range h.Tensors {
		out, err := w.Tensor(info.Name)
		if err != nil {
			break
		}
		buf := make([]byte, piece)
		in := io.NewSectionReader(tensors[info.Name], 0, tensors[info.Name].Size())
		if _, err := io.CopyBuffer(struct{ io.Writer }{out}, struct{ io.Reader }{in}, buf); err != nil {
			break
		}
	}
	return w.Close()
}

// TestCreateWritesTheSame compares Create with NewWriter, byte for byte.
func TestCreateWritesTheSame(t *testing.T) {
	tensors := map[string]Tensor{"a": counting(U32, 300, 1000), "b": counting(F32, 5), "c": counting(U32, 0)}
	var want []byte
	for _, piece := range []int{7, 4096, 3 << 20} {
		name := filepath.Join(t.TempDir(), "file")
		require.NoError(t, createFile(name, tensors, piece))
		got := must(os.ReadFile(name))
		if want == nil {
			want = got
		}
		require.True(t, bytes.Equal(want, got))
		requireTensors(t, tensors, must(Parse(got)))
		require.Len(t, must(os.ReadDir(filepath.Dir(name))), 1)
	}
}
