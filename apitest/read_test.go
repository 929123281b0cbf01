package apitest_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"testing"
	"testing/iotest"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestRead reads what Write writes, from readers that return little, and much with the
// end.
func TestRead(t *testing.T) {
	for _, tensors := range []map[string]Tensor{nil, {"scalar": counting(U32)}, kindsOf(t), {"large": counting(U32, 1<<20)}} {
		file := saved(tensors, map[string]string{"k": "v"})
		want := must(Parse(file))
		for _, slow := range []func(io.Reader) io.Reader{iotest.HalfReader, iotest.DataErrReader, piped, func(r io.Reader) io.Reader { return r }} {
			f := must(Read(slow(bytes.NewReader(file))))
			require.Equal(t, want.Header(), f.Header())
			require.NoError(t, f.Close())
			f = must(Read(slow(bytes.NewReader(file))))
			again := saved(maps.Collect(f.Tensors()), f.Metadata())
			require.Equal(t, file, again)
		}
	}
}

// piped returns the other end of a pipe with the bytes of r.
func piped(r io.Reader) io.Reader {
	out, in := io.Pipe()
	go func() {
		_, err := io.Copy(in, r)
		in.CloseWithError(err)
	}()
	return out
}

// TestReadViews: tensors are at addresses that suit their dtypes, and stay after Close.
func TestReadViews(t *testing.T) {
	wide := must(NewTensor(U64, []int{1}, []uint64{1 << 40}))
	for range 100 { // small allocations share blocks
		var file bytes.Buffer
		require.NoError(t, Write(&file, map[string]Tensor{"a": wide, "b": counting(U32, 1)}, nil))
		f := must(Read(&file))
		view, err := View[uint64](must(f.Tensor("a")))
		require.NoError(t, f.Close())
		if !littleEndian() {
			require.ErrorIs(t, err, errors.ErrUnsupported)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, []uint64{1 << 40}, view)
	}
}

// TestReadFails: a stream is not at fault where its reader fails, at any byte.
func TestReadFails(t *testing.T) {
	file := fileOf(`{"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}}`, 4)
	for n := range len(file) + 1 {
		for _, failure := range []error{errors.New("failure"), io.ErrUnexpectedEOF} {
			_, err := Read(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(failure)))
			require.EqualError(t, err, "safetensors: reading a file: "+failure.Error())
			require.ErrorIs(t, err, failure)
			require.False(t, errors.As(err, new(*FormatError)))
		}
	}
	for _, rest := range []io.Reader{bytes.NewReader(make([]byte, 1)), zeros{}} {
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

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}
