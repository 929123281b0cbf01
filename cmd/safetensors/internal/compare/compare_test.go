package compare

import (
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

func tensor[T safetensors.Element](t *testing.T, d safetensors.DType, shape []int, values ...T) safetensors.Tensor {
	t.Helper()
	return must(safetensors.NewTensor(d, shape, values))
}

// TestValuesZeros has zeros of dtypes below a byte that differ in their sign.
func TestValuesZeros(t *testing.T) {
	for d, negative := range map[safetensors.DType][]byte{
		safetensors.F4: {0x08, 0}, safetensors.F6_E2M3: {0x20, 0, 0}, safetensors.F6_E3M2: {0x20, 0, 0},
	} {
		a, b := tensor(t, d, []int{4}, make([]byte, len(negative))...), tensor(t, d, []int{4}, negative...)
		require.Equal(t, Difference{Different: 1}, must(Values(a, b, Tolerance{})), d)
		require.Equal(t, Difference{}, must(Values(a, b, Tolerance{Absolute: 1e-9})), d)
	}
}

func TestValues(t *testing.T) {
	nan, inf, zero := float32(math.NaN()), float32(math.Inf(1)), float32(math.Copysign(0, -1))
	for _, c := range []struct {
		a, b      []float32
		tolerance Tolerance
		want      Difference
	}{
		{[]float32{1, 2}, []float32{1, 2}, Tolerance{}, Difference{}},
		{[]float32{1, 2}, []float32{1, 4}, Tolerance{}, Difference{1, 2, 0.5, 4, []int{1}}},
		{[]float32{1, 2}, []float32{1, 4}, Tolerance{Absolute: 2}, Difference{0, 2, 0.5, 4, []int{1}}},
		{[]float32{1, 2}, []float32{1, 4}, Tolerance{Relative: 0.5}, Difference{0, 2, 0.5, 4, []int{1}}},
		{[]float32{4, 4}, []float32{1, 1}, Tolerance{Absolute: 2}, Difference{2, 3, 3, 18, []int{0}}},
		{[]float32{nan, inf}, []float32{nan, inf}, Tolerance{}, Difference{}},
		{[]float32{nan, 1}, []float32{nan, 1.5}, Tolerance{}, Difference{1, 0.5, 0.5 / 1.5, 0.25, []int{1}}},
		{[]float32{-inf, 1}, []float32{inf, 5}, Tolerance{1e9, 1e9}, Difference{1, math.NaN(), 0.8, math.NaN(), []int{0}}},
		{[]float32{5, nan}, []float32{1, 1}, Tolerance{}, Difference{2, math.NaN(), math.NaN(), math.NaN(), []int{1}}},
		{[]float32{1, 0}, []float32{1, zero}, Tolerance{}, Difference{1, 0, 0, 0, nil}},
		{[]float32{1, 0}, []float32{1, zero}, Tolerance{Absolute: 1e-9}, Difference{}},
		{[]float32{1, 0}, []float32{0, 0}, Tolerance{}, Difference{1, 1, 0, 1, []int{0}}},
	} {
		got := must(Values(tensor(t, safetensors.F32, []int{2}, c.a...), tensor(t, safetensors.F32, []int{2}, c.b...), c.tolerance))
		if math.IsNaN(c.want.MaxAbsolute) {
			require.True(t, math.IsNaN(got.MaxAbsolute), "%v %v", c.a, c.b)
			require.True(t, math.IsNaN(got.Squares), "%v %v", c.a, c.b)
			c.want.MaxAbsolute, got.MaxAbsolute = 0, 0
			c.want.Squares, got.Squares = 0, 0
		}
		if math.IsNaN(c.want.MaxRelative) {
			require.True(t, math.IsNaN(got.MaxRelative), "%v %v", c.a, c.b)
			c.want.MaxRelative, got.MaxRelative = 0, 0
		}
		require.Equal(t, c.want, got, "%v %v", c.a, c.b)
	}
}

// TestBits: without a tolerance, equal numbers of other bits are different, of one byte, too.
func TestBits(t *testing.T) {
	for d, bits := range map[safetensors.DType][2]byte{safetensors.F8_E4M3: {0, 0x80}, safetensors.BOOL: {1, 2}} {
		a, b := tensor(t, d, []int{1}, bits[0]), tensor(t, d, []int{1}, bits[1])
		got := must(Values(a, b, Tolerance{}))
		require.Equal(t, Difference{Different: 1}, got, d)
		got = must(Values(a, b, Tolerance{Absolute: 1e-9}))
		require.Equal(t, Difference{}, got, d)
	}
}

func TestDTypes(t *testing.T) {
	a := tensor(t, safetensors.F32, []int{3}, float32(1), 2, 3.001)
	b := must(a.Convert(safetensors.BF16))
	d := must(Values(a, b, Tolerance{Absolute: 0.01}))
	require.Zero(t, d.Different)
	require.InDelta(t, 0.001, d.MaxAbsolute, 1e-4)
	require.Equal(t, []int{2}, d.At)

	d = must(Values(tensor(t, safetensors.I64, []int{1}, int64(-3)), tensor(t, safetensors.U8, []int{1}, uint8(3)), Tolerance{}))
	require.Equal(t, Difference{1, 6, 2, 36, []int{0}}, d)

	const large = 1 << 60 // beyond the integers that float64 has
	for _, tolerance := range []Tolerance{{}, {Absolute: 0.5}} {
		d = must(Values(tensor(t, safetensors.I64, []int{2}, int64(5), large+1), tensor(t, safetensors.I64, []int{2}, int64(5), large), tolerance))
		require.Equal(t, Difference{1, 1, 1.0 / large, 1, []int{1}}, d)
	}
	d = must(Values(tensor(t, safetensors.U64, []int{1}, uint64(large)), tensor(t, safetensors.U64, []int{1}, uint64(large+3)), Tolerance{}))
	require.Equal(t, 3.0, d.MaxAbsolute)
	d = must(Values(tensor(t, safetensors.I64, []int{1}, int64(math.MinInt64)), tensor(t, safetensors.I64, []int{1}, int64(math.MaxInt64)), Tolerance{}))
	require.Equal(t, 0x1p64, d.MaxAbsolute)

	const most = math.MaxInt64
	ints := tensor(t, safetensors.I64, []int{4}, int64(large+1), most, -1, 7)
	for _, c := range []struct {
		b         safetensors.Tensor
		different int64
		most      float64
	}{
		{tensor(t, safetensors.U64, []int{4}, uint64(large+1), most, 0, 7), 1, 1},
		{tensor(t, safetensors.U64, []int{4}, uint64(large), most+1, 0, 7), 3, 1},
		{tensor(t, safetensors.U64, []int{4}, uint64(large+2), most-1, 1, 7), 3, 2},
		{tensor(t, safetensors.U64, []int{4}, uint64(large+1), most, math.MaxUint64, 7), 1, 0x1p64},
		{tensor(t, safetensors.F64, []int{4}, float64(large), 0x1p63, -1, 7), 2, 1},
		{tensor(t, safetensors.F32, []int{4}, float32(large), 0x1p62, -1, 7), 2, 0x1p62},
		{tensor(t, safetensors.I32, []int{4}, int32(1), 1, -1, 7), 2, 0x1p63},
	} {
		for _, pair := range [][2]safetensors.Tensor{{ints, c.b}, {c.b, ints}} {
			d := must(Values(pair[0], pair[1], Tolerance{}))
			require.Equal(t, c.different, d.Different, "%v %v", pair[0], pair[1])
			require.Equal(t, c.most, d.MaxAbsolute, "%v %v", pair[0], pair[1])
		}
	}

	c := tensor(t, safetensors.C64, []int{2, 2}, complex64(1), 2i, 3, 4)
	e := tensor(t, safetensors.C64, []int{2, 2}, complex64(1), 2i, 3+5i, 4)
	d = must(Values(c, e, Tolerance{}))
	require.Equal(t, []int{1, 0}, d.At)
	require.Equal(t, int64(1), d.Different)
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, c := range []struct {
		a, b safetensors.Tensor
		want Difference
	}{
		{c, tensor(t, safetensors.C64, []int{2, 2}, complex64(1), 2i, -4i, 4), Difference{1, 5, 1.25, 25, []int{1, 0}}},
		{c, tensor(t, safetensors.F32, []int{2, 2}, float32(1), 2, 3, 4), Difference{1, math.Sqrt(8), math.Sqrt2, 8, []int{0, 1}}},
		{tensor(t, safetensors.F32, []int{2, 2}, float32(1), 2, 3, 4), c, Difference{1, math.Sqrt(8), math.Sqrt2, 8, []int{0, 1}}},
		{c, tensor(t, safetensors.I64, []int{2, 2}, int64(1), 0, 3, 4), Difference{1, 2, 0, 4, []int{0, 1}}},
		{tensor(t, safetensors.C64, []int{2}, complex(nan, 1), complex(1, inf)), tensor(t, safetensors.C64, []int{2}, complex(nan, 1), complex(2, inf)), Difference{1, 1, 0, 1, []int{1}}},
	} {
		got := must(Values(c.a, c.b, Tolerance{}))
		require.InDelta(t, c.want.Squares, got.Squares, 1e-12)
		require.InDelta(t, c.want.MaxAbsolute, got.MaxAbsolute, 1e-12)
		require.InDelta(t, c.want.MaxRelative, got.MaxRelative, 1e-12)
		require.Equal(t, []any{c.want.Different, c.want.At}, []any{got.Different, got.At})
	}
	d = must(Values(c, tensor(t, safetensors.C64, []int{2, 2}, complex64(complex(1, 0)), 2i, 3, 1i), Tolerance{}))
	require.InDelta(t, math.Sqrt(17), d.MaxRelative, 1e-12)

	f := tensor(t, safetensors.F4, []int{2, 2}, byte(0x21), 0x43)
	g := tensor(t, safetensors.F4, []int{2, 2}, byte(0x21), 0x73)
	d = must(Values(f, g, Tolerance{}))
	require.Equal(t, []int{1, 1}, d.At)
	require.Equal(t, int64(1), d.Different)

	scalar := tensor(t, safetensors.BOOL, nil, byte(1))
	require.Equal(t, []int{}, must(Values(scalar, tensor(t, safetensors.BOOL, nil, byte(0)), Tolerance{})).At)
	d = must(Values(tensor[float32](t, safetensors.F32, []int{0, 3}), tensor[float32](t, safetensors.F32, []int{0, 3}), Tolerance{}))
	require.Equal(t, Difference{}, d)
	_, err := Values(a, scalar, Tolerance{})
	require.Error(t, err)
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
		return tensor(t, d, []int{len(numbers)}, data...)
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
			d := must(Values(tensor(t, safetensors.F32, []int{n}, x...), tensor(t, safetensors.F32, []int{n}, z...), Tolerance{}))
			require.Equal(t, Difference{int64(len(at)), 2, 2.0 / 12, 4 * float64(len(at)), []int{first}}, d)
		}
		for _, i := range at {
			x[i] = y[i]
		}
	}
}
