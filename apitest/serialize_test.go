package apitest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestWriteOrder checks every byte of written files: the order of tensors and of
// metadata keys, the escapes, the padding.
func TestWriteOrder(t *testing.T) {
	tensors := map[string]Tensor{
		"b": counting(U32, 1), "a": counting(U32, 1), "é": counting(F32, 1), "z": counting(F32, 0, 3), "\x00\"\\\n\v<>&\u2028\x7f": counting(I32, 1),
	}
	header := `{"__metadata__":{"":"","b":"1","k":"v"},` +
		`"z":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]},` +
		`"é":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},` +
		`"a":{"dtype":"U32","shape":[1],"data_offsets":[4,8]},` +
		`"b":{"dtype":"U32","shape":[1],"data_offsets":[8,12]},` +
		`"\u0000\"\\\n\u000b<>&` + "\u2028\x7f" + `":{"dtype":"I32","shape":[1],"data_offsets":[12,16]}}`
	header += strings.Repeat(" ", -len(header)&7)
	require.Equal(t, fileOf(header, 16), saved(tensors, map[string]string{"k": "v", "": "", "b": "1"}))
	require.Equal(t, fileOf("{}      ", 0), saved(nil, nil))
	none := saved(nil, map[string]string{})
	require.Equal(t, fileOf(`{"__metadata__":{}}     `, 0), none)
	require.NotNil(t, must(Parse(none)).Metadata())
}

// TestWriteRefuses checks that a checkpoint that makes no valid file is refused
// with nothing written, and by FileOf with the same words.
func TestWriteRefuses(t *testing.T) {
	x := counting(U32, 1)
	for _, c := range []struct {
		rule     string
		tensors  map[string]Tensor
		metadata map[string]string
		want     string
	}{
		{"__metadata__ is no tensor", map[string]Tensor{"__metadata__": x}, nil, `tensor "__metadata__": this name is reserved`},
		{"tensor names are valid UTF-8", map[string]Tensor{"\xff": x}, nil, `tensor "\xff": the name is not valid UTF-8`},
		{"metadata keys are valid UTF-8", nil, map[string]string{"\xff": ""}, `metadata key "\xff"`},
		{"metadata values are valid UTF-8", nil, map[string]string{"k": "\xed\xa0\x80"}, `metadata key "k" or its value is not valid UTF-8`},
		{"tensors are not zero", map[string]Tensor{"a": x, "x": {}, "z": {}}, nil, `tensor "x": the zero Tensor has no dtype and no data`},
		{"names of tensors count", map[string]Tensor{strings.Repeat("x", 100_000_000): x}, nil, "exceeds the limit of 100000000"},
		{"a header has at most 100 MB", nil, map[string]string{"k": strings.Repeat("x", 100_000_000)}, "a header of 100000032 bytes exceeds the limit of 100000000"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			var out bytes.Buffer
			err := Write(&out, c.tensors, c.metadata)
			require.ErrorContains(t, err, c.want)
			require.False(t, errors.As(err, new(*FormatError)))
			require.Zero(t, out.Len())
			f, same := FileOf(c.tensors, c.metadata, func() error { panic("nothing was opened") })
			require.EqualError(t, same, err.Error())
			require.Nil(t, f)
			dir := t.TempDir()
			require.ErrorContains(t, WriteFile(filepath.Join(dir, "x"), c.tensors, c.metadata), c.want)
			require.ErrorContains(t, WriteShards(dir, c.tensors, c.metadata, 1), c.want)
			requireEmptyDir(t, dir)
		})
	}
}

// TestFailingWriter makes the writer fail after every number of bytes.
func TestFailingWriter(t *testing.T) {
	tensors := map[string]Tensor{"a": counting(U32, 4), "b": counting(F32, 3)}
	out := saved(tensors, nil)
	for n := range len(out) {
		require.ErrorIs(t, Write(failingWriter(n), tensors, nil), errWriter)
	}
	require.NoError(t, Write(failingWriter(len(out)), tensors, nil))
	for n := range 16 {
		written, err := tensors["a"].WriteTo(failingWriter(n))
		require.ErrorIs(t, err, errWriter)
		require.EqualValues(t, n, written)
	}
	lying := func(by int) writerFunc { return func(b []byte) (int, error) { return len(b) + by, nil } }
	require.ErrorIs(t, Write(lying(-1), tensors, nil), io.ErrShortWrite)
	n, err := tensors["a"].WriteTo(lying(1))
	require.ErrorContains(t, err, "wrote 17 of 16 bytes")
	require.Zero(t, n)
}

// TestReplaceOpenFile rewrites the very file that the tensors are mapped from. On
// Windows that is refused and the file is unchanged.
func TestReplaceOpenFile(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"x": counting(U32, 8)})
	f := must(Open(name))
	defer f.Close()
	x := must(f.Tensor("x"))
	half := must(x.Slice(Span(4, 8)))
	err := WriteFile(name, map[string]Tensor{"half": half}, nil)
	old, oldErr := Append[uint32](nil, x)
	require.NoError(t, oldErr)
	require.Equal(t, []uint32{0, 1, 2, 3, 4, 5, 6, 7}, old)
	if !testplatform.ReplacesOpenFiles {
		require.ErrorContains(t, err, "cannot be replaced")
		require.Len(t, must(os.ReadDir(filepath.Dir(name))), 1, "the temporary file is gone")
		return
	}
	require.NoError(t, err)
	g := must(Open(name))
	defer g.Close()
	half = must(g.Tensor("half"))
	require.Equal(t, []uint32{4, 5, 6, 7}, must(Append[uint32](nil, half)))
}

// TestTargets checks which targets WriteFile and Create replace, and that they keep their
// mode.
func TestTargets(t *testing.T) {
	tensors := map[string]Tensor{"x": counting(U32, 1)}
	for way, write := range map[string]func(name string) error{
		"WriteFile": func(name string) error { return WriteFile(name, tensors, nil) },
		"Create":    func(name string) error { return createFile(name, tensors, 4) },
	} {
		t.Run(way, func(t *testing.T) {
			dir := t.TempDir()
			require.ErrorContains(t, write(dir), "is a directory")
			missing := filepath.Join(dir, "missing", "x")
			err := write(missing)
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.EqualError(t, err, fmt.Sprintf("safetensors: create %s: %v", missing, errors.Unwrap(errors.Unwrap(err))))
			require.Error(t, write(""))
			requireEmptyDir(t, dir)
			testplatform.NeedModes(t)
			testplatform.NeedSymlinks(t)
			name, link := filepath.Join(dir, "x"), filepath.Join(dir, "link")
			require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
			require.NoError(t, os.Chmod(name, 0o640))
			require.NoError(t, os.Symlink(name, link))
			require.NoError(t, write(link))
			require.True(t, must(os.Lstat(link)).Mode().IsRegular(), "the link is replaced")
			require.Equal(t, "old", string(must(os.ReadFile(name))))
			require.NoError(t, write(name))
			require.Equal(t, os.FileMode(0o640), must(os.Stat(name)).Mode())
		})
	}
}

// TestWriter writes tensors in an order of its own; those without elements can be
// left out.
func TestWriter(t *testing.T) {
	h := &Header{Metadata: map[string]string{"k": "v"}, Tensors: []TensorInfo{
		{Name: "z", DType: U32, Shape: []int{2}, DataOffsets: [2]int64{77, 99}},
		{Name: "empty", DType: F32, Shape: []int{0}},
		{Name: "b", DType: F32, Shape: []int{1}},
	}}
	var out bytes.Buffer
	w := must(NewWriter(&out, h))
	require.Equal(t, [2]int64{77, 99}, h.Tensors[0].DataOffsets, "the header is not modified")
	must(counting(U32, 2).WriteTo(must(w.Tensor("z"))))
	must(counting(F32, 1).WriteTo(must(w.Tensor("b"))))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.Error(t, errorOf(w.Tensor("b")))
	f := must(Parse(out.Bytes()))
	require.Equal(t, h.Metadata, f.Metadata())
	require.Equal(t, []string{"z", "empty", "b"}, namesOf(f))
	requireTensors(t, map[string]Tensor{"z": counting(U32, 2), "empty": counting(F32, 0), "b": counting(F32, 1)}, f)
}

// TestWriterErrors checks the error of each misuse of a Writer, that it stays and leaves
// the old file, and that errors of the underlying writer pass.
func TestWriterErrors(t *testing.T) {
	header := &Header{Tensors: []TensorInfo{{Name: "a", DType: U8, Shape: []int{4}}, {Name: "b", DType: U8, Shape: []int{2}}}}
	for _, c := range []struct {
		rule  string
		steps func(w *Writer) error
		want  string
	}{
		{"tensors come in the order of the header", func(w *Writer) error { _, err := w.Tensor("b"); return err }, `safetensors: tensor "b" is not the next in the header, which is "a"`},
		{"tensors are in the header", func(w *Writer) error { writeZeros(w, "a", 4); writeZeros(w, "b", 2); return writeZeros(w, "c", 0) }, `safetensors: tensor "c" is not among the remaining ones of the header`},
		{"a tensor is written once", func(w *Writer) error { writeZeros(w, "a", 4); return writeZeros(w, "a", 4) }, `safetensors: tensor "a" is not the next in the header, which is "b"`},
		{"a tensor is complete before the next one", func(w *Writer) error { writeZeros(w, "a", 3); return writeZeros(w, "b", 2) }, `safetensors: tensor "a": 1 of its 4 bytes are missing`},
		{"a tensor is complete before Close", func(w *Writer) error { writeZeros(w, "a", 1); return w.Close() }, `safetensors: tensor "a": 3 of its 4 bytes are missing`},
		{"the last tensor is written", func(w *Writer) error { writeZeros(w, "a", 4); return w.Close() }, `safetensors: tensor "b" and those after it are missing: 2 bytes`},
		{"the first tensor is written", func(w *Writer) error { return w.Close() }, `safetensors: tensor "a" and those after it are missing: 6 bytes`},
		{"a tensor has no more bytes than its size", func(w *Writer) error { return writeZeros(w, "a", 5) }, `safetensors: tensor "a": 1 byte beyond its size of 4`},
		{"a tensor is written before the next one", func(w *Writer) error {
			dst, _ := w.Tensor("a")
			dst.Write(make([]byte, 4))
			writeZeros(w, "b", 1)
			n, err := dst.Write([]byte{1})
			if n > 0 {
				return fmt.Errorf("%d bytes are written", n)
			}
			return err
		}, `safetensors: tensor "a": data written after the next tensor was started`},
	} {
		t.Run(c.rule, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "x")
			require.NoError(t, os.WriteFile(name, []byte("old"), 0o666))
			for _, open := range []func() (*Writer, error){
				func() (*Writer, error) { return NewWriter(io.Discard, header) },
				func() (*Writer, error) { return Create(name, header) },
			} {
				w := must(open())
				err := c.steps(w)
				require.EqualError(t, err, c.want)
				require.Len(t, listDir(filepath.Dir(name)), 1, "no temporary file, before Close, too")
				require.Equal(t, err, w.Close(), "errors stay")
				require.Equal(t, err, errorOf(w.Tensor("a")))
				require.Equal(t, "old", string(must(os.ReadFile(name))))
			}
		})
	}
	for n := range len(must(header.AppendBinary(nil))) + 6 {
		w, err := NewWriter(failingWriter(n), header)
		if err == nil {
			writeZeros(w, "a", 4)
			require.ErrorIs(t, writeZeros(w, "b", 2), errWriter)
			err = w.Close()
		}
		require.ErrorIs(t, err, errWriter)
	}
}

// writeZeros writes n zero bytes as the data of a tensor.
func writeZeros(w *Writer, name string, n int) error {
	dst, err := w.Tensor(name)
	if err == nil {
		_, err = dst.Write(make([]byte, n))
	}
	return err
}

// FuzzRoundTrip writes tensors of any names, with Write and through a Writer, and reads them
// again.
func FuzzRoundTrip(f *testing.F) {
	f.Add("a", "b\x00\"é", "k", "v")
	f.Add("", "\u2028", "", "")
	f.Fuzz(func(t *testing.T, name1, name2, key, value string) {
		tensors, metadata := map[string]Tensor{name1: counting(U32, 2, 3), name2: counting(F32, 1)}, map[string]string{key: value}
		var out, streamed bytes.Buffer
		if err := Write(&out, tensors, metadata); err != nil {
			require.Zero(t, out.Len())
			return
		}
		file := must(Parse(out.Bytes()))
		require.Equal(t, metadata, file.Metadata())
		require.Zero(t, binary.LittleEndian.Uint64(out.Bytes())%8)
		requireTensors(t, tensors, file)
		require.NoError(t, writeBy(func(h *Header) (*Writer, error) { return NewWriter(&streamed, h) }, file, 0))
		require.Equal(t, out.Bytes(), streamed.Bytes())
	})
}
