package apitest_test

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestEqual: two tensors are equal if dtype, shape and bytes are, wherever the bytes come from.
func TestEqual(t *testing.T) {
	x := counting(F32, 4, 6)
	data := appended[float32](x)
	other := func(i int, v float32) Tensor {
		changed := appended[float32](x)
		changed[i] = v
		return must(NewTensor(F32, []int{4, 6}, changed))
	}
	f := must(Open(writeTemp(t, map[string]Tensor{"x": x})))
	defer f.Close()
	computed := must(NewTensorFunc(F32, []int{4, 6}, func(dst []float32) error { copy(dst, data); return nil }))
	nan := must(NewTensor(F32, []int{1}, []uint32{0x7fc00001}))
	for _, c := range []struct {
		rule string
		a, b Tensor
		want bool
	}{
		{"itself", x, x, true},
		{"of a file", x, must(f.Tensor("x")), true},
		{"computed", computed, x, true},
		{"joined", must(Concat(0, must(x.Slice(Span(0, 1))), must(x.Slice(From(1))))), x, true},
		{"transposed twice", must(must(x.Transpose()).Transpose()), x, true},
		{"read through another", must(must(x.Transpose()).Reshape(4, 6)), must(must(x.Transpose()).Reshape(4, 6)), true},
		{"converted", must(must(x.Convert(F64)).Convert(F32)), x, true},
		{"no elements", counting(F32, 0, 3), counting(F32, 0, 3), true},
		{"no elements, of another shape", counting(F32, 0, 3), counting(F32, 3, 0), false},
		{"the same bytes of another shape", x, must(x.Reshape(24)), false},
		{"the same bytes of another dtype", x, must(x.Bitcast(U32)), false},
		{"the first element", x, other(0, -1), false},
		{"the last element", other(23, -1), x, false},
		{"the other sign of zero", must(NewTensor(F32, []int{1}, []float32{0})), must(NewTensor(F32, []int{1}, []float32{float32(math.Copysign(0, -1))})), false},
		{"a NaN of the same bits", nan, nan, true},
		{"a NaN of other bits", nan, must(NewTensor(F32, []int{1}, []float32{float32(math.NaN())})), false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			got, err := Equal(c.a, c.b)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestEqualReads: Equal reads nothing where dtype or shape differ, and never calls tensors equal that it could not read to their ends.
func TestEqualReads(t *testing.T) {
	const size = 64 << 20
	zeros := func(fail int64) Tensor {
		return must(NewTensorAt(U8, []int{size}, readerAtFunc(func(b []byte, off int64) (int, error) {
			if off+int64(len(b)) > fail {
				return 0, io.ErrUnexpectedEOF
			}
			clear(b)
			return len(b), nil
		})))
	}
	require.True(t, must(Equal(zeros(size), zeros(size))))
	for _, fail := range []int64{0, size - 1} {
		equal, err := Equal(zeros(size), zeros(fail))
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.False(t, equal)
	}
	require.False(t, must(Equal(must(NewTensor(U8, []int{2}, []byte{0, 0})), zeros(0))), "the shape tells")
	require.False(t, must(Equal(must(zeros(0).Bitcast(I8)), zeros(0))), "the dtype tells")
}

// TestEqualStops: after a difference in the first block, later blocks are not read.
func TestEqualStops(t *testing.T) {
	const size = 1 << 30
	reader := func(first byte) Tensor {
		return must(NewTensorAt(U8, []int{size}, readerAtFunc(func(b []byte, off int64) (int, error) {
			clear(b)
			if off == 0 {
				b[0] = first
			}
			return len(b), nil
		})))
	}
	require.False(t, must(Equal(reader(0), reader(1))))
}

// TestEqualRefuses: a closed file, the zero Tensor and a func that fails are errors.
func TestEqualRefuses(t *testing.T) {
	x := counting(F32, 3)
	path := filepath.Join(t.TempDir(), "x.safetensors")
	require.NoError(t, WriteFile(path, map[string]Tensor{"x": x}, nil))
	f := must(Open(path))
	stored := must(f.Tensor("x"))
	require.True(t, must(Equal(stored, x)))
	require.NoError(t, f.Close())
	cause := errors.New("no room")
	failing := must(NewTensorFunc(F32, []int{3}, func([]float32) error { return cause }))
	for _, c := range []struct {
		rule string
		a, b Tensor
		is   error
	}{
		{"a closed file", stored, stored, fs.ErrClosed},
		{"a func that fails", x, failing, cause},
		{"the zero Tensor", x, Tensor{}, nil},
		{"two zero Tensors", Tensor{}, Tensor{}, nil},
	} {
		for _, pair := range [][2]Tensor{{c.a, c.b}, {c.b, c.a}} {
			equal, err := Equal(pair[0], pair[1])
			require.Error(t, err, c.rule)
			if c.is != nil {
				require.ErrorIs(t, err, c.is, c.rule)
			}
			require.False(t, equal, c.rule)
		}
	}
}
