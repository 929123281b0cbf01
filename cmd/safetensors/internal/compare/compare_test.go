package compare

import (
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func tensor[T safetensors.Element](d safetensors.DType, shape []int, values ...T) safetensors.Tensor {
	return must(safetensors.NewTensor(d, shape, values))
}

func list[T safetensors.Element](d safetensors.DType, values ...T) safetensors.Tensor {
	return tensor(d, []int{binary.Size(values) * 8 / d.Bits()}, values...)
}

// TestValues has pairs of tensors with NaNs, infinities, zeros of both signs and integers that
// float64 cannot hold, and the difference of each.
func TestValues(t *testing.T) {
	nan, inf, zero := float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1))
	none := math.NaN()
	floats := func(values ...float32) safetensors.Tensor { return list(safetensors.F32, values...) }
	ints := func(values ...int64) safetensors.Tensor { return list(safetensors.I64, values...) }
	square := func(values ...complex64) safetensors.Tensor { return tensor(safetensors.C64, []int{2, 2}, values...) }
	const large = 1 << 60                    // beyond the integers that float64 has
	const lost = float64(float32(3.001)) - 3 // in BF16
	exact, near := Tolerance{}, Tolerance{Absolute: 1e-9}
	for i, c := range []struct {
		a, b      safetensors.Tensor
		tolerance Tolerance
		want      Difference
	}{
		{floats(1, 2), floats(1, 2), exact, Difference{}},
		{floats(1, 2), floats(1, 4), exact, Difference{1, 2, 0.5, 4, []int{1}}},
		{floats(1, 2), floats(1, 4), Tolerance{Absolute: 2}, Difference{0, 0, 0, 4, nil}},
		{floats(100.5, 1.25), floats(100, 1), Tolerance{Relative: 0.125}, Difference{1, 0.25, 0.25, 0.3125, []int{1}}},
		{floats(1, 2), floats(1, 4), Tolerance{Relative: 0.5}, Difference{0, 0, 0, 4, nil}},
		{floats(4, 4), floats(1, 1), Tolerance{Absolute: 2}, Difference{2, 3, 3, 18, []int{0}}},
		{floats(nan, inf), floats(nan, inf), exact, Difference{}},
		{floats(nan, 1), floats(nan, 1.5), exact, Difference{1, 0.5, 0.5 / 1.5, 0.25, []int{1}}},
		{floats(-inf, 1), floats(inf, 5), Tolerance{1e9, 1e9}, Difference{1, none, none, none, []int{0}}},
		{floats(2, 1), floats(inf, 5), exact, Difference{2, none, none, none, []int{0}}},
		{floats(1, inf), floats(5, 0), exact, Difference{2, none, none, none, []int{1}}},
		{floats(inf), floats(nan), exact, Difference{1, none, none, none, []int{0}}},
		{floats(5, nan), floats(1, 1), exact, Difference{2, none, none, none, []int{1}}},
		{floats(1, 0), floats(0, 0), exact, Difference{1, 1, 0, 1, []int{0}}},
		{floats(1, 2, 3.001), list(safetensors.BF16, uint16(0x3f80), 0x4000, 0x4040), Tolerance{Absolute: 0.01}, Difference{0, 0, 0, lost * lost, nil}},

		// Without a tolerance, equal numbers of other bits are different.
		{floats(1, 0), floats(1, zero), exact, Difference{Different: 1}},
		{floats(1, 0), floats(1, zero), near, Difference{}},
		{list(safetensors.F4, byte(0)), list(safetensors.F4, byte(8)), exact, Difference{Different: 1}},
		{list(safetensors.F4, byte(0)), list(safetensors.F4, byte(8)), near, Difference{}},
		{list(safetensors.F6_E2M3, make([]byte, 3)...), list(safetensors.F6_E2M3, byte(0x20), 0, 0), exact, Difference{Different: 1}},
		{list(safetensors.F6_E3M2, make([]byte, 3)...), list(safetensors.F6_E3M2, byte(0x20), 0, 0), exact, Difference{Different: 1}},
		{list(safetensors.F8_E4M3, byte(0)), list(safetensors.F8_E4M3, byte(0x80)), exact, Difference{Different: 1}},
		{list(safetensors.F8_E4M3, byte(0)), list(safetensors.F8_E4M3, byte(0x80)), near, Difference{}},
		{list(safetensors.BOOL, byte(1)), list(safetensors.BOOL, byte(2)), exact, Difference{Different: 1}},
		{list(safetensors.BOOL, byte(1)), list(safetensors.BOOL, byte(2)), near, Difference{}},

		{ints(-3), list(safetensors.U8, byte(3)), exact, Difference{1, 6, 2, 36, []int{0}}},
		{ints(5, large+1), ints(5, large), exact, Difference{1, 1, 1.0 / large, 1, []int{1}}},
		{ints(5, large+1), ints(5, large), Tolerance{Absolute: 0.5}, Difference{1, 1, 1.0 / large, 1, []int{1}}},
		{list(safetensors.U64, uint64(large)), list(safetensors.U64, uint64(large+3)), exact, Difference{1, 3, 3.0 / large, 9, []int{0}}},
		{ints(math.MinInt64), ints(math.MaxInt64), exact, Difference{1, 0x1p64, 2, 0x1p128, []int{0}}},

		{square(1, 2i, 3, 4), square(1, 2i, 3+5i, 4), exact, Difference{1, 5, 5 / math.Sqrt(34), 25, []int{1, 0}}},
		{square(1, 2i, 3, 4), square(1, 2i, -4i, 4), exact, Difference{1, 5, 1.25, 25, []int{1, 0}}},
		{square(1, 2i, 3, 4), square(1, 2i, 3, 1i), exact, Difference{1, math.Sqrt(17), math.Sqrt(17), 17, []int{1, 1}}},
		{square(1, 2i, 3, 4), tensor(safetensors.F32, []int{2, 2}, float32(1), 2, 3, 4), exact, Difference{1, math.Sqrt(8), math.Sqrt2, 8, []int{0, 1}}},
		{tensor(safetensors.F32, []int{2, 2}, float32(1), 2, 3, 4), square(1, 2i, 3, 4), exact, Difference{1, math.Sqrt(8), math.Sqrt2, 8, []int{0, 1}}},
		{square(1, 2i, 3, 4), tensor(safetensors.I64, []int{2, 2}, int64(1), 0, 3, 4), exact, Difference{1, 2, 0, 4, []int{0, 1}}},
		{list(safetensors.C64, complex(nan, 1), complex(1, inf)), list(safetensors.C64, complex(nan, 1), complex(2, inf)), exact, Difference{1, 1, 0, 1, []int{1}}},

		{tensor(safetensors.F4, []int{2, 2}, byte(0x21), 0x43), tensor(safetensors.F4, []int{2, 2}, byte(0x21), 0x73), exact, Difference{1, 4, 4.0 / 6, 16, []int{1, 1}}},
		{tensor(safetensors.BOOL, nil, byte(1)), tensor(safetensors.BOOL, nil, byte(0)), exact, Difference{1, 1, 0, 1, []int{}}},
		{tensor[float32](safetensors.F32, []int{0, 3}), tensor[float32](safetensors.F32, []int{0, 3}), exact, Difference{}},
	} {
		got := must(Values(c.a, c.b, c.tolerance))
		require.Equal(t, []any{c.want.Different, c.want.At}, []any{got.Different, got.At}, i)
		for k, want := range []float64{c.want.MaxAbsolute, c.want.MaxRelative, c.want.Squares} {
			x := []float64{got.MaxAbsolute, got.MaxRelative, got.Squares}[k]
			require.True(t, math.IsNaN(want) && math.IsNaN(x) || math.Abs(want-x) <= 1e-12*math.Abs(want), "%d: %v", i, got)
		}
	}
	_, err := Values(floats(1), ints(1, 2), exact)
	require.EqualError(t, err, "F32 [1] and I64 [2] have different shapes")
}

// TestIntegers compares integers of 64 bits with other numbers, both ways.
func TestIntegers(t *testing.T) {
	const large, most = 1 << 60, math.MaxInt64
	ints := list(safetensors.I64, int64(large+1), most, -1, 7)
	for _, c := range []struct {
		b         safetensors.Tensor
		different int64
		most      float64
	}{
		{list(safetensors.U64, uint64(large+1), most, 0, 7), 1, 1},
		{list(safetensors.U64, uint64(large), most+1, 0, 7), 3, 1},
		{list(safetensors.U64, uint64(large+2), most-1, 1, 7), 3, 2},
		{list(safetensors.U64, uint64(large+1), most, math.MaxUint64, 7), 1, 0x1p64},
		{list(safetensors.F64, float64(large), 0x1p63, -1, 7), 2, 1},
		{list(safetensors.F32, float32(large), 0x1p62, -1, 7), 2, 0x1p62},
		{list(safetensors.I32, int32(1), 1, -1, 7), 2, 0x1p63},
	} {
		for _, pair := range [][2]safetensors.Tensor{{ints, c.b}, {c.b, ints}} {
			d := must(Values(pair[0], pair[1], Tolerance{}))
			require.Equal(t, c.different, d.Different, "%v %v", pair[0], pair[1])
			require.Equal(t, c.most, d.MaxAbsolute, "%v %v", pair[0], pair[1])
		}
	}
}

// TestAllPairs compares every dtype with every other one, both ways: 0, 1 and 2 with
// themselves, and with 1, 1 and 1.
func TestAllPairs(t *testing.T) {
	codes := map[safetensors.DType][3]uint64{ // of 0, 1 and 2, unless they are those of an integer
		safetensors.F4: {0, 2, 4}, safetensors.F6_E2M3: {0, 8, 16}, safetensors.F6_E3M2: {0, 12, 16},
		safetensors.F8_E5M2: {0, 0x3c, 0x40}, safetensors.F8_E4M3: {0, 0x38, 0x40}, safetensors.F8_E8M0: {127, 127, 128},
		safetensors.F8_E4M3FNUZ: {0, 0x40, 0x48}, safetensors.F8_E5M2FNUZ: {0, 0x40, 0x44},
		safetensors.F16: {0, 0x3c00, 0x4000}, safetensors.BF16: {0, 0x3f80, 0x4000},
		safetensors.F32: {0, 0x3f800000, 0x40000000}, safetensors.C64: {0, 0x3f800000, 0x40000000},
		safetensors.F64: {0, 0x3ff << 52, 0x400 << 52},
	}
	of := func(d safetensors.DType, numbers ...int) safetensors.Tensor {
		data := make([]byte, len(numbers)*d.Bits()/8)
		for i, x := range numbers {
			code := uint64(x)
			if c, ok := codes[d]; ok {
				code = c[x]
			}
			for bit := range d.Bits() {
				at := i*d.Bits() + bit
				data[at/8] |= byte(code>>bit&1) << (at % 8)
			}
		}
		return tensor(d, []int{len(numbers)}, data...)
	}
	for a := range safetensors.DTypes() {
		for b := range safetensors.DTypes() {
			d := must(Values(of(a, 0, 1, 2, 1), of(b, 0, 1, 2, 1), Tolerance{}))
			zero := a == safetensors.F8_E8M0 != (b == safetensors.F8_E8M0) // which has none
			two := a == safetensors.BOOL != (b == safetensors.BOOL)
			if !zero && !two {
				require.Equal(t, Difference{}, d, "%v %v", a, b)
			}
			d = must(Values(of(a, 1, 1, 2, 2), of(b, 1, 1, 1, 1), Tolerance{}))
			if a != safetensors.BOOL {
				require.Equal(t, Difference{2, 1, 1, 2, []int{2}}, d, "%v %v", a, b)
			}
		}
	}
}

// TestClaims compares tensors of more bits than an int64 holds: their files have a few
// bytes of them.
func TestClaims(t *testing.T) {
	x := must(safetensors.NewTensorAt(safetensors.F4, []int{1 << 16, 1 << 15, 1 << 15, 1 << 15}, strings.NewReader("a few bytes")))
	_, err := Values(x, x, Tolerance{})
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// TestBlocks compares tensors of many blocks: the first of equally large differences
// counts, wherever it is and whoever finds it.
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 5*blockElements + 17
	x, y := make([]float32, n), make([]float32, n)
	for i := range x {
		x[i] = rng.Float32()
		y[i] = x[i]
	}
	for _, at := range [][]int{{0}, {n - 1}, {3 * blockElements, blockElements + 5}, {n - 1, 2*blockElements - 1, 2 * blockElements}} {
		z := append([]float32{}, y...)
		first := n
		for _, i := range at {
			x[i], z[i] = 10, 12
			first = min(first, i)
		}
		for range 10 {
			d := must(Values(list(safetensors.F32, x...), list(safetensors.F32, z...), Tolerance{}))
			require.Equal(t, Difference{int64(len(at)), 2, 2.0 / 12, 4 * float64(len(at)), []int{first}}, d)
		}
		for _, i := range at {
			x[i] = y[i]
		}
	}
}

// TestNorm: the norm counts every finite element of b once, in blocks that are equal, too, and a
// place is found in a block of which only the elements that differ are converted.
func TestNorm(t *testing.T) {
	const n = 3*blockElements + 5
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16, safetensors.F64, safetensors.U8} {
		a, b := make([]float32, n), make([]float32, n)
		want := 0.0
		for i := range b {
			a[i], b[i] = float32(i%7), float32(i%7)
		}
		b[7], b[2*blockElements+3] = 9, 100
		if d.IsFloat() {
			a[n-1], b[n-1] = float32(math.Inf(1)), float32(math.Inf(1))
		}
		for _, x := range b {
			if x < 1000 {
				want += float64(x) * float64(x)
			}
		}
		var x, y safetensors.Tensor
		if d.IsFloat() {
			x = must(must(safetensors.NewTensor(safetensors.F32, []int{n}, a)).Convert(d))
			y = must(must(safetensors.NewTensor(safetensors.F32, []int{n}, b)).Convert(d))
		} else {
			bytesOf := func(values []float32) []byte {
				all := make([]byte, len(values))
				for i, v := range values {
					all[i] = byte(v)
				}
				return all
			}
			x = must(safetensors.NewTensor(d, []int{n}, bytesOf(a)))
			y = must(safetensors.NewTensor(d, []int{n}, bytesOf(b)))
		}
		got, norm, err := ValuesAndNorm(x, y, Tolerance{})
		require.NoError(t, err)
		require.Equal(t, want, norm, d)
		require.Equal(t, int64(2), got.Different, d)
		require.Equal(t, []int{2*blockElements + 3}, got.At, d)
		_, norm, err = ValuesAndNorm(y, y, Tolerance{})
		require.NoError(t, err)
		require.Zero(t, norm, d)
	}
}

// TestSums: the sums are the same in all digits however the blocks are divided among the processors.
func TestSums(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	a, b := make([]float32, 40*blockElements), make([]float32, 40*blockElements)
	for i := range a {
		a[i] = random.Float32()
		b[i] = a[i]
		if i/blockElements%3 > 0 && random.IntN(9) == 0 { // a third of the blocks are equal
			b[i] = random.Float32()
		}
	}
	x, y := list(safetensors.F32, a...), list(safetensors.F32, b...)
	d, norm, err := ValuesAndNorm(x, y, Tolerance{})
	require.NoError(t, err)
	require.Positive(t, d.Squares)
	for range 20 {
		again, sameNorm, err := ValuesAndNorm(x, y, Tolerance{})
		require.NoError(t, err)
		require.Equal(t, d, again)
		require.Equal(t, norm, sameNorm)
	}
}
