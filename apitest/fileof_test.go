package apitest_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// kindsOf returns tensors of every kind under names whose order is not that of a file.
func kindsOf(t testing.TB) map[string]Tensor {
	tensors := map[string]Tensor{}
	for kind, x := range sourcesOf(t, counting(F32, 64, 24)) {
		for made, y := range derivedOf(x) {
			tensors[made+" "+kind] = y.Tensor
		}
	}
	tensors["a \"scalar\"\n"] = counting(I32)
	return tensors
}

// whole returns all that a File says of its tensors.
func whole(f *File) []any {
	return []any{f.Header(), f.Metadata(), f.Len(), f.ParameterCount(), maps.Collect(f.Headers()), namesOf(f)}
}

// TestFileOf compares a File of tensors with the one that Write makes of them.
func TestFileOf(t *testing.T) {
	for _, tensors := range []map[string]Tensor{nil, {}, {"x": counting(U32, 0)}, {"": counting(U32)}, kindsOf(t)} {
		for _, metadata := range []map[string]string{nil, {}, {"b": "\x00", "a": "ü"}} {
			given, notes := maps.Clone(tensors), maps.Clone(metadata)
			f := must(FileOf(given, notes, nil))
			clear(given)
			clear(notes)
			file := saved(tensors, metadata)
			written := must(Parse(file))
			require.Equal(t, whole(written), whole(f))
			for name, x := range f.Tensors() {
				require.Equal(t, tensors[name], x, "the tensor itself")
				require.Equal(t, x, must(f.Tensor(name)))
			}
			require.ErrorIs(t, errorOf(f.Tensor("absent")), fs.ErrNotExist)
			require.NoError(t, f.Close())
		}
	}
}

// TestFileOfClose calls close once, whichever way the File is closed, also if close closes
// the File itself, and what it is joined into.
func TestFileOfClose(t *testing.T) {
	failure := errors.New("failure")
	tensors := checkpointOf(4)
	for way, own := range map[string]func(*File) (*File, error){
		"alone":  func(f *File) (*File, error) { return f, nil },
		"joined": func(f *File) (*File, error) { return Join(f) },
		"a shard": func(f *File) (*File, error) {
			index := strings.NewReader(`{"weight_map":{"t02":"s"}}`)
			return OpenShards(index, func(string) (*File, error) { return f, nil })
		},
	} {
		calls := 0
		var inner, f *File
		inner = must(FileOf(tensors, nil, func() error {
			calls++
			require.NoError(t, inner.Close(), way)
			require.NoError(t, f.Close(), way)
			return failure
		}))
		f = must(own(inner))
		for name, x := range f.Tensors() {
			require.Equal(t, tensors[name], x, way)
		}
		require.Zero(t, calls)
		require.ErrorIs(t, f.Close(), failure, way)
		require.NoError(t, f.Close(), way)
		require.NoError(t, inner.Close(), way)
		require.Equal(t, 1, calls, way)
	}
	closed := 0
	failing := func() *File {
		return must(FileOf(nil, nil, func() error { closed++; return failure }))
	}
	require.ErrorIs(t, must(Join(failing(), failing())).Close(), failure)
	require.Equal(t, 2, closed, "the error of one does not leave the other open")
	file := must(Open(writeTemp(t, tensors)))
	f := must(FileOf(maps.Collect(file.Tensors()), nil, file.Close))
	x := must(f.Tensor("t00"))
	require.NoError(t, f.Close())
	require.ErrorIs(t, errorOf(Append[uint32](nil, x)), fs.ErrClosed)
}

// TestRead reads what Write writes, from readers that return little, and much with the
// end.
func TestRead(t *testing.T) {
	for _, tensors := range []map[string]Tensor{nil, {"scalar": counting(U32)}, kindsOf(t), {"large": counting(U32, 1<<20)}} {
		file := saved(tensors, map[string]string{"k": "v"})
		want := must(Parse(file))
		for _, slow := range []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader, func(r io.Reader) io.Reader { return r }} {
			f := must(Read(slow(bytes.NewReader(file))))
			require.Equal(t, want.Header(), f.Header())
			require.NoError(t, f.Close())
			f = must(Read(slow(bytes.NewReader(file))))
			again := saved(maps.Collect(f.Tensors()), f.Metadata())
			require.Equal(t, file, again)
		}
	}
}

// TestViewsOutliveClose: tensors in memory are at addresses that suit their dtypes, and stay
// after Close.
func TestViewsOutliveClose(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": must(NewTensor(U64, []int{1}, []uint64{1 << 40})), "b": counting(U32, 1)})
	for _, way := range []string{"Load", "Parse", "Read"} {
		for range 30 { // small allocations share blocks
			f := must(openedBy[way](name))
			x := must(f.Tensor("a"))
			bytes := must(View[byte](x))
			view, err := View[uint64](x)
			require.NoError(t, f.Close())
			runtime.GC()
			if littleEndian() {
				require.NoError(t, err)
				require.Equal(t, []uint64{1 << 40}, view)
			} else {
				require.ErrorIs(t, err, errors.ErrUnsupported)
			}
			require.Equal(t, []byte{0, 0, 0, 0, 0, 1, 0, 0}, bytes)
		}
	}
}

// TestReadFails: what is read is not at fault where its reader fails, at any byte.
func TestReadFails(t *testing.T) {
	file, index := fileOf(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}`, 4), []byte(`{"weight_map":{}}`)
	for n := range len(file) + 1 {
		fails := func(text []byte, err error) io.Reader {
			return io.MultiReader(bytes.NewReader(text[:min(n, len(text))]), iotest.ErrReader(err))
		}
		for what, err := range map[string]error{
			"NewFile":    errorOf(NewFile(&failingReader{ReaderAt: bytes.NewReader(file), left: int64(n)}, int64(len(file)+1))),
			"ReadHeader": errorOf(ReadHeader(fails(file[:len(file)-5], errReader))),
			"ReadIndex":  errorOf(ReadIndex(fails(index, errReader))),
		} {
			require.ErrorIs(t, err, errReader, what)
			require.False(t, errors.As(err, new(*FormatError)), what)
		}
		for _, failure := range []error{errReader, io.ErrUnexpectedEOF} {
			_, err := Read(fails(file, failure))
			require.EqualError(t, err, "safetensors: reading a file: "+failure.Error())
			require.ErrorIs(t, err, failure)
			require.False(t, errors.As(err, new(*FormatError)))
		}
	}
	for _, rest := range []io.Reader{bytes.NewReader(make([]byte, 1)), rand.NewChaCha8([32]byte{})} {
		_, err := Read(io.MultiReader(bytes.NewReader(file), rest))
		require.EqualError(t, err, fmt.Sprintf("safetensors: the tensors end at 4, but the data buffer goes on (at byte %d)", len(file)))
		require.True(t, errors.As(err, new(*FormatError)))
	}

	// A sum of a decompressor comes after the last byte.
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	must(z.Write(file))
	require.NoError(t, z.Close())
	packed.Bytes()[packed.Len()-8]++
	require.ErrorIs(t, errorOf(Read(must(gzip.NewReader(&packed)))), gzip.ErrChecksum)
}
