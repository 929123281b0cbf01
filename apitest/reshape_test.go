package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestBitcast checks that Bitcast keeps the bytes and scales the last dimension.
func TestBitcast(t *testing.T) {
	x := must(NewTensor(U8, []int{2, 8}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}))
	for d, last := range map[DType]int{I8: 8, BOOL: 8, F4: 16, U16: 4, F32: 2, C64: 1, I64: 1} {
		y := must(x.Bitcast(d))
		require.Equal(t, []int{2, last}, y.Shape(), d)
		require.Equal(t, appended[byte](x), appended[byte](y), d)
		require.Equal(t, x, must(y.Bitcast(U8)), d)
	}
}

// TestConvert checks rounding in one and two conversions.
func TestConvert(t *testing.T) {
	x := must(NewTensor(F64, []int{4}, []float64{1, 1 + 0x1p-8 + 0x1p-30, math.Inf(-1), 1e300}))
	direct := must(x.Convert(BF16))
	bits := must(Append[uint16](nil, direct))
	require.Equal(t, []uint16{0x3f80, 0x3f81, 0xff80, 0x7f80}, bits)

	// Two conversions round twice: F32 drops the bit that breaks the tie.
	twice := must(x.Convert(F32))
	twice = must(twice.Convert(BF16))
	bits = must(Append[uint16](nil, twice))
	require.Equal(t, []uint16{0x3f80, 0x3f80, 0xff80, 0x7f80}, bits)
	require.Equal(t, []float64{1, 1, math.Inf(-1), math.Inf(1)}, must(Append[float64](nil, twice)))

	// A tensor can be converted to several dtypes, each apart from the others.
	half := must(twice.Convert(F16))
	must(twice.Convert(F32))
	bits = must(Append[uint16](nil, half))
	require.Equal(t, []uint16{0x3c00, 0x3c00, 0xfc00, 0x7c00}, bits)

	must(View[float64](must(x.Convert(F64))))
	require.ErrorIs(t, errorOf(View[uint16](direct)), errors.ErrUnsupported)
}

// repeating returns a tensor of n elements of d whose bytes repeat a random period of
// that many elements, a multiple of 8.
func repeating(d DType, period, n int) Tensor {
	random := rand.New(rand.NewPCG(uint64(d), uint64(period)))
	data := make([]byte, n*d.Bits()/8)
	for i := range data {
		if p := period * d.Bits() / 8; i < p {
			data[i] = byte(random.Uint32())
		} else {
			data[i] = data[i-p]
		}
	}
	return must(NewTensor(d, []int{n}, data))
}

// TestConvertInBlocks converts tensors in memory to more bytes than a block has, so
// that all blocks but the first start within the tensor.
func TestConvertInBlocks(t *testing.T) {
	const period = 8 * 1009 // no block starts where a period does
	pairs := []struct{ from, to DType }{{F4, F32}, {F32, BF16}, {F6_E2M3, F16}, {F8_E4M3, BF16}, {BF16, F32}}
	if testing.Short() {
		pairs = pairs[:2]
	}
	for _, c := range pairs {
		t.Run(fmt.Sprintf("%v to %v", c.from, c.to), func(t *testing.T) {
			n := mem.BlockSize*8/c.to.Bits() + 3*period + 4
			x := must(repeating(c.from, period, n).Convert(c.to))
			require.Greater(t, x.Size(), int64(mem.BlockSize))
			once := must(repeating(c.from, period, period).Convert(c.to))
			want := bytes.Repeat(appended[byte](once), n/period+1)[:x.Size()]
			require.True(t, bytes.Equal(want, bytesOfTensor(t, x)))
			y := must(must(Load(writeTemp(t, map[string]Tensor{"x": x}))).Tensor("x"))
			require.True(t, bytes.Equal(want, appended[byte](y)), "WriteFile")
		})
	}
}

// TestReshapeWithoutReading: where strides can express the new shape, it stays a slice of
// its data: parts of it that are contiguous there have a View, and nothing else is read.
func TestReshapeWithoutReading(t *testing.T) {
	x := counting(U32, 6, 12)
	heads := must(must(x.Slice(All(), Span(0, 8))).Reshape(2, 3, 4, 2))
	row := must(View[uint32](must(heads.Slice(At(1), At(2)))))
	require.Equal(t, []uint32{60, 61, 62, 63, 64, 65, 66, 67}, row)
	swapped := must(must(must(x.Reshape(2, 3, 12)).Transpose(1, 0, 2)).Reshape(3, 2, 3, 4))
	row = must(View[uint32](must(swapped.Slice(At(2), At(1), At(0)))))
	require.Equal(t, []uint32{60, 61, 62, 63}, row)

	joined := must(Concat(1, must(heads.Slice(All(), Span(0, 1))), must(heads.Slice(All(), Span(1, 3)))))
	require.Equal(t, heads, joined, "parts are the tensor again")
	flat := must(must(x.Transpose()).Reshape(72))
	joined = must(Concat(0, must(flat.Part(0, 0, 2)), must(flat.Part(0, 1, 2))))
	require.Equal(t, flat, joined)
	_, err := View[uint32](flat)
	require.ErrorContains(t, err, "its elements were not contiguous before Reshape")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// TestReshapePartReadsItsBytes: a part of what Reshape reads through asks a reader for
// its own rows only.
func TestReshapePartReadsItsBytes(t *testing.T) {
	x := counting(U32, 8, 1024, 64)
	r := &recordingReader{ReaderAt: bytes.NewReader(appended[byte](x))}
	y := must(must(must(NewTensorAt(U32, x.Shape(), r)).Transpose(0, 2, 1)).Reshape(8*64, 1024))
	want := appended[uint32](must(must(x.Transpose(0, 2, 1)).Reshape(8*64, 1024)))
	part := must(y.Part(0, 3, 8))
	require.Zero(t, r.bytes)
	require.Equal(t, want[3*64*1024:4*64*1024], appended[uint32](part))
	require.EqualValues(t, 64*1024*4, r.bytes)
	r.bytes = 0
	must(Append[uint32](nil, must(part.Slice(All(), Span(0, 512)))))
	require.EqualValues(t, 64*1024*4, r.bytes, "nor do columns of it")
	r.bytes = 0
	must(y.ReadAt(make([]byte, 4096), 4096*100))
	require.LessOrEqual(t, r.bytes, int64(64*1024*4), "a window does not read the rest")
	for name, z := range map[string]Tensor{"whole": y, "converted": must(must(y.Bitcast(F32)).Convert(F64))} {
		r.bytes = 0
		must(z.WriteTo(io.Discard))
		require.EqualValues(t, x.Size(), r.bytes, "each byte is read once: %s", name)
	}
}

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
	require.Less(t, testplatform.Allocated(func() { x = must(x.Transpose()) }), uint64(64<<20))
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
