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

// TestCreateIncomplete closes after every number of bytes: only the last Close
// makes a file.
func TestCreateIncomplete(t *testing.T) {
	h := &Header{Tensors: []TensorInfo{{Name: "a", DType: U8, Shape: []int{5}}, {Name: "b", DType: U8, Shape: []int{4}}}}
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o666))
	for n := range 10 {
		w := must(Create(name, h))
		for k, tensor := range []string{"a", "b"} {
			size := min(5-k, max(0, n-5*k))
			if size == 0 {
				continue
			}
			must(must(w.Tensor(tensor)).Write(make([]byte, size)))
		}
		err := w.Close()
		require.Len(t, listDir(dir), 1, "no temporary file")
		got := must(os.ReadFile(name))
		if n < 9 {
			require.ErrorContains(t, err, "missing", n)
			require.Equal(t, err, w.Close(), "the error stays")
			require.Equal(t, "old", string(got))
		} else {
			require.NoError(t, err)
			require.NoError(t, w.Close())
			require.NotEqual(t, "old", string(got))
		}
		require.Error(t, errorOf(w.Tensor("a")))
	}
}

func TestAppendBinary(t *testing.T) {
	tensors := map[string]Tensor{"a": counting(U32, 2), "b": counting(F32, 3)}
	metadata := map[string]string{"k": "v"}
	file := saved(tensors, metadata)
	h := must(ReadHeader(bytes.NewReader(file)))
	require.Equal(t, "before"+string(file[:h.DataStart]), string(must(h.AppendBinary([]byte("before")))))
}
