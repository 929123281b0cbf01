package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
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
	tensors := map[string]Tensor{"a": counting(t, U32, 300, 1000), "b": counting(t, F32, 5), "c": counting(t, U32, 0)}
	var want []byte
	for _, piece := range []int{7, 4096, 3 << 20} {
		name := filepath.Join(t.TempDir(), "file")
		require.NoError(t, createFile(name, tensors, piece))
		got := must(os.ReadFile(name))
		if want == nil {
			want = got
		}
		require.True(t, bytes.Equal(want, got))
		f := must(Parse(got))
		for name, x := range f.Tensors() {
			require.Equal(t, appended[byte](t, tensors[name]), appended[byte](t, x))
		}
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
		entries, dirErr := os.ReadDir(dir)
		require.NoError(t, dirErr)
		require.Len(t, entries, 1, "no temporary file")
		got, readErr := os.ReadFile(name)
		require.NoError(t, readErr)
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

func TestCreateErrors(t *testing.T) {
	h := &Header{Tensors: []TensorInfo{{Name: "a", DType: U8, Shape: []int{2}}, {Name: "b", DType: U8, Shape: []int{1}}}}
	for _, c := range []struct {
		rule string
		use  func(w *Writer) error
		want string
	}{
		{"the next tensor", func(w *Writer) error { _, err := w.Tensor("b"); return err }, `tensor "b" is not the next in the header, which is "a"`},
		{"not more bytes", func(w *Writer) error {
			_, err := must(w.Tensor("a")).Write(make([]byte, 3))
			return err
		}, `tensor "a": 1 bytes beyond its size of 2`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			dir := t.TempDir()
			w := must(Create(filepath.Join(dir, "x"), h))
			require.EqualError(t, c.use(w), "safetensors: "+c.want)
			requireEmptyDir(t, dir)
			require.EqualError(t, w.Close(), "safetensors: "+c.want)
		})
	}
	dir := t.TempDir()
	require.ErrorContains(t, errorOf(Create(filepath.Join(dir, "x"), &Header{Tensors: []TensorInfo{{Name: "a", DType: U8}, {Name: "a", DType: U8}}})), "duplicate tensor name")
	missing := filepath.Join(dir, "missing", "x")
	_, err := Create(missing, h)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.EqualError(t, err, fmt.Sprintf("safetensors: create %s: %v", missing, errors.Unwrap(errors.Unwrap(err))))
	require.ErrorContains(t, errorOf(Create(dir, h)), "is a directory")
	requireEmptyDir(t, dir)
}

// TestCreateTargets: modes and symbolic links are those of WriteFile.
func TestCreateTargets(t *testing.T) {
	testplatform.NeedModes(t)
	testplatform.NeedSymlinks(t)
	tensors := map[string]Tensor{"x": counting(t, U32, 1)}
	name := filepath.Join(t.TempDir(), "x")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
	require.NoError(t, os.Chmod(name, 0o640))
	link := name + ".link"
	require.NoError(t, os.Symlink(name, link))
	require.NoError(t, createFile(link, tensors, 4))
	info := must(os.Lstat(link))
	require.True(t, info.Mode().IsRegular(), "the link is replaced")
	require.NoError(t, createFile(name, tensors, 4))
	info = must(os.Stat(name))
	require.Equal(t, os.FileMode(0o640), info.Mode())
}

func TestAppendBinary(t *testing.T) {
	tensors := map[string]Tensor{"a": counting(t, U32, 2), "b": counting(t, F32, 3)}
	metadata := map[string]string{"k": "v"}
	var file bytes.Buffer
	require.NoError(t, Write(&file, tensors, metadata))
	h, err := ReadHeader(bytes.NewReader(file.Bytes()))
	require.NoError(t, err)
	b := must(h.AppendBinary([]byte("before")))
	require.Equal(t, "before"+string(file.Bytes()[:h.DataStart]), string(b))
	h.Tensors = append(h.Tensors, h.Tensors[0])
	b, err = h.AppendBinary([]byte("before"))
	require.ErrorContains(t, err, "duplicate tensor name")
	require.Equal(t, "before", string(b))
}
