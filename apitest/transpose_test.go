package apitest_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

func permuted(shape, dims []int) []int {
	out := make([]int, len(dims))
	for i, dim := range dims {
		out[i] = shape[dim]
	}
	return out
}

// randomTensor returns a tensor of random bytes.
func randomTensor(dtype DType, shape ...int) Tensor {
	n := 1
	for _, size := range shape {
		n *= size
	}
	random := rand.New(rand.NewPCG(uint64(n), uint64(dtype)))
	data := make([]byte, n*dtype.Bits()/8)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	return must(NewTensor(dtype, shape, data))
}

// TestTransposeReverses: without dims the order is that of numpy.transpose.
func TestTransposeReverses(t *testing.T) {
	x := counting(U32, 2, 3, 2)
	y := must(x.Transpose())
	require.Equal(t, []int{2, 3, 2}, y.Shape())
	require.Equal(t, []uint32{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}, appended[uint32](y))
	require.Equal(t, x, must(y.Transpose()), "twice is once more the tensor")
}

// TestTransposeReads: an operation reads each byte of a file once, in large reads. A
// window costs what it has.
func TestTransposeReads(t *testing.T) {
	x := randomTensor(F32, 3, 1500, 1000)
	r := &recordingReader{ReaderAt: bytes.NewReader(appended[byte](x))}
	y := must(must(NewTensorAt(F32, x.Shape(), r)).Transpose(0, 2, 1))
	for way, read := range readings(t.TempDir()) {
		r.calls, r.bytes = 0, 0
		must(read(y))
		require.Equal(t, x.Size(), r.bytes, way)
		require.LessOrEqual(t, r.calls, 6, way)
	}
	r.calls, r.bytes = 0, 0
	_, err := y.ReadAt(make([]byte, 3*1500*4), 10*1500*4) // three rows, which were columns
	require.NoError(t, err)
	require.LessOrEqual(t, r.bytes, int64(1500*4000), "one matrix")
	r.calls, r.bytes = 0, 0
	must(y.ReadAt(make([]byte, 8), 4))
	require.LessOrEqual(t, r.bytes, int64(2*4000))
}

// TestTransposeManyDimensions: ranks that a file may claim cost no more than their
// elements.
func TestTransposeManyDimensions(t *testing.T) {
	ones := slices.Repeat([]int{1}, 1<<20)
	x := must(NewTensor(U8, ones, []byte{7}))
	require.Less(t, allocated(func() { x = must(x.Transpose()) }), uint64(64<<20))
	require.Equal(t, []byte{7}, appended[byte](x))

	twos := slices.Repeat([]int{2}, 16)
	e := &expression{TB: t, random: rand.New(rand.NewPCG(1, 2))}
	for kind := range sources {
		source := e.leafOf(kind, U16, twos...)
		require.Equal(t, source.Tensor, must(must(source.Tensor.Transpose()).Transpose()), kind)
		y := source.transpose(e, reversed(16)...)
		require.Equal(t, y.bytes(), bytesOfTensor(t, y.Tensor), kind)
	}
}

// TestRangesInOrder joins slices that interleave and overlap: a RangeReader is asked
// for ranges in increasing order even so.
func TestRangesInOrder(t *testing.T) {
	x := counting(U32, 1, 20)
	r := rangesOf(appended[byte](x))
	y := must(NewTensorAt(U32, x.Shape(), r))
	for _, step := range []int{1, 2} {
		of := func(x Tensor, first int) Tensor { return must(x.Slice(All(), Span(first, first+4*step+1).By(step))) }
		joined := must(Concat(0, of(y, 0), of(y, 3)))
		require.Equal(t, appended[uint32](must(Concat(0, of(x, 0), of(x, 3)))), appended[uint32](joined))
	}
}
