package apitest_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestCallersFault: programs delete a download because of a FormatError. What a caller
// passes wrongly to an exported function is an ordinary error; the tables of refusals check
// theirs.
func TestCallersFault(t *testing.T) {
	x := counting(U32, 2, 3)
	f := must(FileOf(map[string]Tensor{"x": x}, nil, nil))
	dir := t.TempDir()
	writer := func() *Writer {
		return must(NewWriter(io.Discard, f.Header()))
	}
	for name, err := range map[string]error{
		"Join duplicate":    errorOf(Join(f, f)),
		"Join nil":          errorOf(Join(nil)),
		"Writer.Tensor":     errorOf(writer().Tensor("y")),
		"Writer.Close":      writer().Close(),
		"ReadAt":            errorOf(x.ReadAt(nil, -1)),
		"Elements name":     errorOf(Elements[uint32](f, "y")),
		"Elements shape":    errorOf(Elements[uint32](f, "x", 1)),
		"File.Tensor":       errorOf(f.Tensor("y")),
		"Open":              errorOf(Open(filepath.Join(dir, "absent"))),
		"Load":              errorOf(Load(dir)),
		"OpenFS":            errorOf(OpenFS(os.DirFS(dir), "..")),
		"OpenFS nil":        errorOf(OpenFS(nil, ".")),
		"OpenShards reader": errorOf(OpenShards(nil, func(string) (*File, error) { return nil, nil })),
		"OpenShards open":   errorOf(OpenShards(strings.NewReader(""), nil)),
		"NewFile":           errorOf(NewFile(nil, 1)),
		"NewFile size":      errorOf(NewFile(strings.NewReader(""), -1)),
		"Read":              errorOf(Read(nil)),
		"ReadHeader":        errorOf(ReadHeader(nil)),
		"ReadIndex":         errorOf(ReadIndex(nil)),
		"MarshalText":       errorOf(DType(0).MarshalText()),
		"NewWriter nil":     errorOf(NewWriter(io.Discard, nil)),
		"Create nil":        errorOf(Create(filepath.Join(dir, "nil"), nil)),
		"AppendBinary nil":  errorOf((*Header)(nil).AppendBinary(nil)),
		"UnmarshalText":     new(DType).UnmarshalText([]byte("X")),
	} {
		require.Error(t, err, name)
		require.Regexp(t, "^safetensors: ", err.Error(), name)
		require.Equal(t, 1, strings.Count(err.Error(), "safetensors: "), name)
		require.False(t, errors.As(err, new(*FormatError)), name)
	}
	requireEmptyDir(t, dir)
}

// openingErrors returns the error of each way to open a file of these bytes.
func openingErrors(t *testing.T, data []byte) map[string]error {
	name := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, os.WriteFile(name, data, 0o666))
	errs := map[string]error{
		"Open dir":    errorOf(Open(filepath.Dir(name))),
		"OpenFS data": errorOf(OpenFS(fstest.MapFS{"x": {Data: data}}, "x")),
	}
	for way, open := range openedBy {
		errs[way] = errorOf(open(name))
	}
	return errs
}

// TestWriterErrorsAsTheyAre: WriteTo returns the error of its writer itself, from tensors
// that are lent and from others.
func TestWriterErrorsAsTheyAre(t *testing.T) {
	for way, open := range openedBy {
		f := must(open(writeTemp(t, map[string]Tensor{"x": counting(U32, 64, 64)})))
		x := must(f.Tensor("x"))
		for _, x := range []Tensor{x, must(x.Slice(All(), At(1)))} {
			n, err := x.WriteTo(failingWriter(7))
			require.True(t, err == errWriter, "%s: %v", way, err)
			require.EqualValues(t, 7, n)
		}
		require.NoError(t, f.Close())
	}
}

// TestReadErrorsNameFileAndTensor: of many shards, an error of reading names the one,
// and the tensor in it, whatever the operation and the way to the bytes.
func TestReadErrorsNameFileAndTensor(t *testing.T) {
	half := must(NewTensor(BF16, []int{4, 4}, make([]uint16, 16)))
	shard := func(name string) []byte {
		return saved(map[string]Tensor{name + "0": counting(U32, 2, 2), name + "1": half}, nil)
	}
	index := `{"weight_map":{"a0":"m-1.safetensors","a1":"m-1.safetensors","b0":"m-2.safetensors","b1":"m-2.safetensors"}}`
	files := fstest.MapFS{"dir/m-1.safetensors": {Data: shard("a")}, "dir/m-2.safetensors": {Data: shard("b")}, "dir/m.safetensors.index.json": {Data: []byte(index)}}
	failing := func(r io.ReaderAt, size int64) *failingReader { // after the headers, with which short files are read as a whole
		return &failingReader{ReaderAt: r, left: size}
	}
	broken := wrappedFS{files, func(f fs.File) fs.File {
		if r, ok := f.(io.ReaderAt); ok {
			return struct {
				fs.File
				io.ReaderAt
			}{f, failing(r, must(f.Stat()).Size())}
		}
		return f // a folder
	}}
	open := func() *File { return must(OpenFS(broken, "dir")) }
	shards := func(of func(*failingReader) io.ReaderAt) func() *File {
		return func() *File {
			return must(OpenShards(strings.NewReader(index), func(name string) (*File, error) {
				data := files["dir/"+name].Data
				return NewFile(of(failing(bytes.NewReader(data), int64(len(data)))), int64(len(data)))
			}))
		}
	}
	called := shards(func(r *failingReader) io.ReaderAt { return r })
	ranges := shards(func(r *failingReader) io.ReaderAt { return rangesOf(r) })
	closed := func() *File {
		f := open()
		require.NoError(t, f.Close())
		return f
	}
	for way, f := range map[string]func() *File{"OpenFS": open, "OpenShards": called, "RangeReader": ranges, "closed": closed} {
		operations := map[string]func(x Tensor) error{
			"Write as": func(x Tensor) error {
				err := Write(io.Discard, map[string]Tensor{"y": x}, nil)
				require.ErrorContains(t, err, `tensor "y": tensor "b1"`)
				return err
			},
			"Slice":     func(x Tensor) error { return errorOf(Append[byte](nil, must(x.Slice(All(), At(1))))) },
			"Transpose": func(x Tensor) error { return errorOf(Append[byte](nil, must(x.Transpose()))) },
			"Reshape":   func(x Tensor) error { return errorOf(Append[byte](nil, must(must(x.Transpose()).Reshape(2, 8)))) },
			"Convert":   func(x Tensor) error { return errorOf(Append[float32](nil, x)) },
			"Concat":    func(x Tensor) error { return errorOf(Append[byte](nil, must(Concat(0, half, x)))) },
		}
		for name, read := range readings(t.TempDir()) {
			operations[name] = func(x Tensor) error { return errorOf(read(x)) }
		}
		for operation, try := range operations {
			t.Run(way+"/"+operation, func(t *testing.T) {
				f := f()
				err := try(must(f.Tensor("b1")))
				require.Regexp(t, "^safetensors: (tensor|writing) ", err.Error())
				require.ErrorContains(t, err, `tensor "b1" of `)
				require.ErrorContains(t, err, "m-2.safetensors: ")
				if way == "OpenFS" || way == "closed" {
					require.ErrorContains(t, err, " of dir/m-2.safetensors: ", "the name that was opened")
				}
				require.Equal(t, 1, strings.Count(err.Error(), `"b1"`), err)
				if way == "closed" {
					require.ErrorIs(t, err, fs.ErrClosed)
				} else {
					require.ErrorIs(t, err, errReader)
				}
			})
		}
	}
}

// TestReadTogetherNames: an error of reading several small tensors in one request names
// the first of them, not the first tensor of the file.
func TestReadTogetherNames(t *testing.T) {
	b := saved(checkpointOf(3), nil)
	failing := &failingReader{ReaderAt: bytes.NewReader(b), left: int64(len(b))}
	f := must(NewFile(rangesOf(failing), int64(len(b))))
	tensors := maps.Collect(f.Tensors())
	delete(tensors, "t00")
	err := Write(io.Discard, tensors, nil)
	require.ErrorIs(t, err, errReader)
	require.EqualError(t, err, `safetensors: writing tensor "t01": `+errReader.Error())
}
