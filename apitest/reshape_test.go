package apitest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/stretchr/testify/require"
)

// TestReshape checks that Reshape keeps the elements and their order, and the error
// of each rule.
func TestReshape(t *testing.T) {
	x := counting(t, U32, 2, 6)
	rows, err := x.Slice(Span(1, 2))
	require.NoError(t, err)
	for _, shape := range [][]int{{12}, {3, 4}, {1, 12, 1}, {2, 6}} {
		y, err := x.Reshape(shape...)
		require.NoError(t, err)
		require.Equal(t, shape, y.Shape())
		require.Equal(t, appended[uint32](t, x), appended[uint32](t, y))
	}
	y, err := rows.Reshape(2, 3)
	require.NoError(t, err, "this slice is contiguous")
	require.Equal(t, []uint32{6, 7, 8, 9, 10, 11}, appended[uint32](t, y))
	require.Equal(t, []int{2, 6}, x.Shape(), "a Tensor is immutable")

	one, err := counting(t, U32, 1, 1).Reshape()
	require.NoError(t, err)
	require.Empty(t, one.Shape())
	for _, c := range []struct {
		rule   string
		tensor Tensor
		shape  []int
		want   string
	}{
		{"elements do not become fewer", x, []int{11}, "reshaping U32 [2,6] to [11]: it has 12 elements, the new shape 11"},
		{"elements do not become more", x, []int{13}, "the new shape 13"},
		{"dimensions are not negative", x, []int{-2, -6}, "negative dimension"},
		{"the number of elements fits 64 bits", x, []int{math.MaxInt, math.MaxInt, 12}, "overflows"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := c.tensor.Reshape(c.shape...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestBitcast checks that Bitcast keeps the bytes and scales the last dimension.
func TestBitcast(t *testing.T) {
	x, err := NewTensor(U8, []int{2, 8}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	require.NoError(t, err)
	for d, last := range map[DType]int{I8: 8, BOOL: 8, F4: 16, U16: 4, F32: 2, C64: 1, I64: 1} {
		y, err := x.Bitcast(d)
		require.NoError(t, err)
		require.Equal(t, []int{2, last}, y.Shape(), d)
		require.Equal(t, appended[byte](t, x), appended[byte](t, y), d)
		back, err := y.Bitcast(U8)
		require.NoError(t, err)
		require.Equal(t, x, back, d)
	}
}

// TestBitcastOfSlices casts slices to dtypes of other sizes: a cast is refused or
// keeps the bytes.
func TestBitcastOfSlices(t *testing.T) {
	x := counting(t, U32, 4, 6, 8)
	dtypes := []DType{F4, F6_E2M3, U8, U16, F32, U64}
	cast := 0
	for _, ranges := range [][]Range{
		{All()}, {Span(1, 3)}, {At(2)}, {All(), Span(1, 5)}, {All(), All(), Span(2, 6)}, {All(), All(), Span(1, 3)},
		{All().By(2)}, {All(), All().By(3)}, {All(), All(), All().By(2)}, {All(), All(), At(3)}, {At(1), At(2), Span(2, 4)}, {Span(0, 0)},
	} {
		part, err := x.Slice(ranges...)
		require.NoError(t, err)
		for _, d := range dtypes {
			y, err := part.Bitcast(d)
			if err != nil {
				require.False(t, d.Bits() == 32, err)
				continue
			}
			cast++
			require.Equal(t, appended[byte](t, part), appended[byte](t, y), "%v %v", ranges, d)
			require.Equal(t, part.Size(), y.Size())
			require.Equal(t, part.Shape()[:max(0, len(part.Shape())-1)], y.Shape()[:max(0, len(y.Shape())-1)])
			back, err := y.Bitcast(U32)
			require.NoError(t, err, "%v %v", ranges, d)
			require.Equal(t, part.Shape(), back.Shape())
			require.Equal(t, appended[uint32](t, part), appended[uint32](t, back))
		}
	}
	require.Greater(t, cast, 30)
}

// TestBitcastRefuses checks the error of each rule.
func TestBitcastRefuses(t *testing.T) {
	x := counting(t, U32, 2, 3)
	floats, err := NewTensor(F32, []int{2}, []float32{1, 2})
	require.NoError(t, err)
	converted, err := floats.Convert(BF16)
	require.NoError(t, err)
	every2nd, err := counting(t, U32, 4).Slice(All().By(2))
	require.NoError(t, err)
	odd, err := counting(t, U32, 2, 5).Slice(All(), Span(1, 3))
	require.NoError(t, err)
	oddStride, err := counting(t, U32, 2, 5).Slice(All(), Span(0, 2))
	require.NoError(t, err)
	huge, err := NewTensor[byte](U8, []int{0, math.MaxInt}, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		rule   string
		tensor Tensor
		dtype  DType
		want   string
	}{
		{"the dtype is valid", x, 99, "casting U32 [2,3] to DType(99): invalid dtype"},
		{"the last dimension holds whole elements", x, U64, "3 elements of the last dimension do not fill whole elements of U64"},
		{"a dimension scales", counting(t, U32), U16, "a scalar has no dimension to scale"},
		{"elements are not converted", converted, U8, "its elements are converted as they are read"},
		{"elements of the last dimension are adjacent", every2nd, U64, "the elements of the last dimension are not adjacent"},
		{"the first element starts a new one", odd, U64, "element 1 of U32 does not start an element of U64"},
		{"strides are whole elements", oddStride, U64, "steps of 5 elements in dimension 0 do not start elements of U64"},
		{"the last dimension fits int", huge, F4, "the last dimension overflows"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := c.tensor.Bitcast(c.dtype)
			require.ErrorContains(t, err, c.want)
		})
	}
	same, err := counting(t, U32).Bitcast(F32)
	require.NoError(t, err, "the size is the same")
	require.Equal(t, F32, same.DType())
}

// TestBitcastBlocks reads the elements of MXFP4 blocks, which files hold as U8.
func TestBitcastBlocks(t *testing.T) {
	blocks, err := NewTensor(U8, []int{1, 2}, []byte{0x21, 0xf7})
	require.NoError(t, err)
	elements, err := blocks.Bitcast(F4)
	require.NoError(t, err)
	require.Equal(t, []int{1, 4}, elements.Shape())
	require.Equal(t, []float32{0.5, 1, 6, -6}, appended[float32](t, elements))
	var out bytes.Buffer
	_, err = elements.WriteTo(&out)
	require.NoError(t, err)
	require.True(t, slices.Equal([]byte{0x21, 0xf7}, out.Bytes()))
}

// TestConvert checks rounding in one and two conversions, and which dtypes can be
// converted.
func TestConvert(t *testing.T) {
	x, err := NewTensor(F64, []int{4}, []float64{1, 1 + 0x1p-8 + 0x1p-30, math.Inf(-1), 1e300})
	require.NoError(t, err)
	direct, err := x.Convert(BF16)
	require.NoError(t, err)
	bits, err := Append[uint16](nil, direct)
	require.NoError(t, err)
	require.Equal(t, []uint16{0x3f80, 0x3f81, 0xff80, 0x7f80}, bits)

	// Two conversions round twice: F32 drops the bit that breaks the tie.
	twice, err := x.Convert(F32)
	require.NoError(t, err)
	twice, err = twice.Convert(BF16)
	require.NoError(t, err)
	bits, err = Append[uint16](nil, twice)
	require.NoError(t, err)
	require.Equal(t, []uint16{0x3f80, 0x3f80, 0xff80, 0x7f80}, bits)
	values, err := Append[float64](nil, twice)
	require.NoError(t, err)
	require.Equal(t, []float64{1, 1, math.Inf(-1), math.Inf(1)}, values)

	// A tensor can be converted to several dtypes, each apart from the others.
	half, err := twice.Convert(F16)
	require.NoError(t, err)
	_, err = twice.Convert(F32)
	require.NoError(t, err)
	bits, err = Append[uint16](nil, half)
	require.NoError(t, err)
	require.Equal(t, []uint16{0x3c00, 0x3c00, 0xfc00, 0x7c00}, bits)

	same, err := x.Convert(F64)
	require.NoError(t, err)
	_, err = View[float64](same)
	require.NoError(t, err, "nothing to convert")
	_, err = View[uint16](direct)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	for _, d := range []DType{F4, F6_E2M3, F8_E8M0, I32, BOOL, C64, 0, 99} {
		_, err = x.Convert(d)
		require.ErrorIs(t, err, errors.ErrUnsupported, "%v", d)
	}
	_, err = counting(t, I32, 2).Convert(F32)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "converting I32 [2] to F32")
}

// TestConvertInChunks converts more elements than a chunk has, from every kind of
// source, contiguous and sliced, with Append and WriteTo.
func TestConvertInChunks(t *testing.T) {
	const chunk = 64 << 10 // elements
	const rows, columns = 3, 2*chunk/3 + 7
	bits := make([]uint16, rows*columns)
	for i := range bits {
		bits[i] = uint16(i * 31)
	}
	x, err := NewTensor(BF16, []int{rows, columns}, bits)
	require.NoError(t, err)
	name := writeTemp(t, map[string]Tensor{"x": x})
	for way, open := range openedBy {
		f := open(t, name)
		x, err := f.Tensor("x")
		require.NoError(t, err)
		part, err := x.Slice(All(), Span(5, columns-1))
		require.NoError(t, err)
		chain, err := part.Convert(F64)
		require.NoError(t, err)
		chain, err = chain.Convert(F32)
		require.NoError(t, err)
		whole, err := Append[float32](nil, x)
		require.NoError(t, err)
		direct, err := Append[float32](nil, part)
		require.NoError(t, err)
		chained, err := Append[uint32](nil, chain)
		require.NoError(t, err)
		var written bytes.Buffer
		_, err = chain.WriteTo(&written)
		require.NoError(t, err)
		same := func(want, got uint32, i int) {
			if want != got { // require.Equal for each element takes most of a minute in an emulator
				require.Failf(t, "it differs", "%s: element %d is %#x, not %#x", way, i, got, want)
			}
		}
		k := 0
		for i, b := range bits {
			want := uint32(b) << 16
			same(want, math.Float32bits(whole[i]), i)
			if c := i % columns; c >= 5 && c < columns-1 {
				same(want, math.Float32bits(direct[k]), i)
				if want&0x7f800000 != 0x7f800000 || want&0x7fffff == 0 { // conversion to F64 quiets NaNs
					same(want, chained[k], i)
				}
				same(chained[k], binary.LittleEndian.Uint32(written.Bytes()[4*k:]), i)
				k++
			}
		}
		require.NoError(t, f.Close())
	}
}

// repeating returns a tensor of n elements of d whose bytes repeat a random period of
// that many elements, a multiple of 8.
func repeating(t testing.TB, d DType, period, n int) Tensor {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(d), uint64(period)))
	data := make([]byte, n*d.Bits()/8)
	for i := range data {
		if p := period * d.Bits() / 8; i < p {
			data[i] = byte(random.Uint32())
		} else {
			data[i] = data[i-p]
		}
	}
	x, err := NewTensor(d, []int{n}, data)
	require.NoError(t, err)
	return x
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
			x, err := repeating(t, c.from, period, n).Convert(c.to)
			require.NoError(t, err)
			require.Greater(t, x.Size(), int64(mem.BlockSize))
			once, err := repeating(t, c.from, period, period).Convert(c.to)
			require.NoError(t, err)
			want := bytes.Repeat(appended[byte](t, once), n/period+1)[:x.Size()]
			require.True(t, bytes.Equal(want, bytesOfTensor(t, x)))
			f, err := Load(writeTemp(t, map[string]Tensor{"x": x}))
			require.NoError(t, err)
			y, err := f.Tensor("x")
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, appended[byte](t, y)), "WriteFile")
		})
	}
}

// TestReadAtConverted reads every small window of converted tensors in memory, and
// some of those from a reader, which take more time. Elements are converted 8 at a
// time; the last ones are only 4.
func TestReadAtConverted(t *testing.T) {
	const n = 44
	for _, from := range []DType{F4, F6_E2M3, F8_E4M3, BF16} {
		stored := repeating(t, from, 48, n)
		fromReader, err := NewTensorAt(from, []int{n}, bytes.NewReader(appended[byte](t, stored)))
		require.NoError(t, err)
		for _, to := range []DType{F32, F16, BF16} {
			for kind, x := range map[string]Tensor{"memory": stored, "reader": fromReader} {
				step := 1
				if kind == "reader" {
					step = 17
				}
				x, err := x.Convert(to)
				require.NoError(t, err)
				var all bytes.Buffer
				_, err = x.WriteTo(&all)
				require.NoError(t, err)
				require.Equal(t, n*to.Bits()/8, all.Len())
				for off := range 71 {
					for size := 0; size < 71; size += step {
						want := all.Bytes()[off:min(off+size, all.Len())]
						got := make([]byte, size)
						read, err := x.ReadAt(got, int64(off))
						if !bytes.Equal(want, got[:read]) || (err == io.EOF) != (len(want) < size) || err != nil && err != io.EOF {
							require.Fail(t, "it differs", "%s, %v to %v: ReadAt %d bytes at %d: %v", kind, from, to, size, off, err)
						}
					}
				}
			}
		}
	}
}

// TestBytesOfNumbers: the bytes of numbers in memory are those of a file, on a big-endian
// host, too, wherever a slice of them begins.
func TestBytesOfNumbers(t *testing.T) {
	testBytesOfNumbers[uint16](t, U16)
	testBytesOfNumbers[float32](t, F32)
	testBytesOfNumbers[uint64](t, U64)
	testBytesOfNumbers[complex64](t, C64)
}

func testBytesOfNumbers[T Element](t *testing.T, d DType) {
	r := rand.New(rand.NewPCG(1, 2))
	shape := []int{4, 3, 8}
	file := make([]byte, 4*3*8*d.Bits()/8)
	for i := range file {
		file[i] = byte(i) & 0x3f // no NaN
	}
	stored, err := NewTensor(d, shape, file)
	require.NoError(t, err)
	numbers, err := Append[T](nil, stored)
	require.NoError(t, err)
	inMemory, err := NewTensor(d, shape, numbers)
	require.NoError(t, err)
	computed, err := NewTensorFunc(d, shape, func(dst []T) error { copy(dst, numbers); return nil })
	require.NoError(t, err)
	for _, to := range []DType{F4, U8, U16, U32} {
		if d.Bits() < to.Bits() {
			continue
		}
		want, err := stored.Bitcast(to)
		require.NoError(t, err)
		for _, x := range []Tensor{inMemory, computed} {
			x, err = x.Bitcast(to)
			require.NoError(t, err)
			for range 50 {
				ranges := make([]Range, 3)
				for i, n := range want.Shape() {
					start := r.IntN(n)
					ranges[i] = Span(start, start+1+r.IntN(n-start))
				}
				if to == F4 {
					ranges[2] = Span(2, 2+2*(1+r.IntN(want.Shape()[2]/2-1)))
				}
				transposed := r.IntN(2) == 0
				part := func(whole Tensor) Tensor {
					part, err := whole.Slice(ranges...)
					require.NoError(t, err)
					if transposed {
						part, err = part.Transpose(1, 0, 2)
						require.NoError(t, err)
					}
					return part
				}
				wantBytes, err := Append[byte](nil, part(want))
				require.NoError(t, err)
				got, err := Append[byte](nil, part(x))
				require.NoError(t, err)
				require.Equal(t, wantBytes, got, "%v to %v %v", d, to, ranges)
				off := r.IntN(len(got))
				tail := make([]byte, len(got)-off)
				_, err = part(x).ReadAt(tail, int64(off))
				require.NoError(t, err)
				require.Equal(t, wantBytes[off:], tail)
			}
		}
	}
}
