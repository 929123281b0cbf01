package compare

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/stretchr/testify/require"
)

// slowly compares two blocks of floats of at most 32 bits, one element after another.
func slowly(d safetensors.DType, a, b []byte) (want Difference, norm float64) {
	u, v := must(numbers.Append(nil, list(d, a...))), must(numbers.Append(nil, list(d, b...)))
	for i, y := range v {
		x := u[i]
		if math.Abs(y) <= math.MaxFloat32 {
			norm += y * y
		}
		if code(a, i, d.Bits()) == code(b, i, d.Bits()) {
			continue
		}
		want.Different++
		absolute := math.Abs(x - y)
		switch {
		case math.IsNaN(x) && math.IsNaN(y):
			absolute = 0
		case !(absolute <= math.MaxFloat64): // float64 has room for the difference of all finite float32
			absolute = math.NaN()
		}
		want.Squares += absolute * absolute
		if absolute != 0 && (want.At == nil || exceeds(absolute, want.MaxAbsolute)) {
			want.MaxAbsolute, want.At = absolute, []int{i}
		}
		if math.IsNaN(absolute) || absolute != 0 && y != 0 {
			want.MaxRelative = max(want.MaxRelative, absolute/math.Abs(y))
		}
	}
	return want, norm
}

// code returns the bits of element i, which has the given number of bits.
func code(data []byte, i, bits int) (c uint32) {
	for k := range bits {
		at := i*bits + k
		c |= uint32(data[at/8]>>(at%8)&1) << k
	}
	return c
}

// setCode sets the bits of element i.
func setCode(data []byte, i, bits int, c uint32) {
	for k := range bits {
		at := i*bits + k
		data[at/8] = data[at/8]&^(1<<(at%8)) | byte(c>>k&1)<<(at%8)
	}
}

// requireAsSlowly requires that got is the difference of two blocks, and gotNorm the norm of b.
func requireAsSlowly(t *testing.T, d safetensors.DType, a, b []byte, got Difference, gotNorm float64) {
	t.Helper()
	want, norm := slowly(d, a, b)
	near := func(x, y float64) bool { return math.Abs(x-y) <= 1e-12*math.Abs(x) || math.IsNaN(x) && math.IsNaN(y) }
	same := func(x, y float64) bool { return x == y || math.IsNaN(x) && math.IsNaN(y) }
	if want.Different != got.Different || !same(want.MaxAbsolute, got.MaxAbsolute) || !same(want.MaxRelative, got.MaxRelative) ||
		!near(want.Squares, got.Squares) || !slices.Equal(want.At, got.At) || !near(norm, gotNorm) {
		require.FailNow(t, "wrong difference", "%v of %x and %x:\nwant %v %v\ngot  %v %v", d, a, b, want, norm, got, gotNorm)
	}
}

// comparison compares blocks of some elements of a dtype, again and again.
func comparison(t *testing.T, d safetensors.DType, elements int) func(a, b []byte) {
	one := tensor(d, []int{elements}, make([]byte, elements*d.Bits()/8)...)
	p, m := &pair{both: [2]safetensors.Tensor{one, one}, same: true}, new(memory)
	return func(a, b []byte) {
		m.bytes = [2][]byte{a, b}
		norm, err := m.squares(d, int64(elements))
		require.NoError(t, err)
		found, at, err := p.compare(int64(elements), m)
		require.NoError(t, err)
		if at == anywhere {
			at, err = p.find(int64(elements), m, found.MaxAbsolute)
			require.NoError(t, err)
		}
		if at != nowhere {
			found.At = []int{int(at)}
		}
		requireAsSlowly(t, d, a, b, found, norm)
	}
}

// TestEvery16Bits compares every BF16 and every F16 with five others, both ways: 0, 1, the largest
// number, NaN and -0. The pair is one of eight elements; it has another place each time.
func TestEvery16Bits(t *testing.T) {
	for d, others := range map[safetensors.DType][]uint32{
		safetensors.BF16: {0, 0x3f80, 0x7f7f, 0x7fc0, 0x8000},
		safetensors.F16:  {0, 0x3c00, 0x7bff, 0x7e00, 0x8000},
	} {
		compare := comparison(t, d, 8)
		a, b := make([]byte, 16), make([]byte, 16)
		for x := range uint32(1 << 16) {
			at := int(x % 8)
			for _, y := range others {
				setCode(a, at, 16, x)
				setCode(b, at, 16, y)
				compare(a, b)
				compare(b, a)
			}
			setCode(a, at, 16, 0)
			setCode(b, at, 16, 0)
		}
	}
}

// TestEveryPair compares every two numbers of each float dtype of at most 8 bits. The pair is one
// of 16 elements; it has another place each time.
func TestEveryPair(t *testing.T) {
	for d := range safetensors.DTypes() {
		if !d.IsFloat() || d.Bits() > 8 {
			continue
		}
		compare := comparison(t, d, 16)
		a, b := make([]byte, 2*d.Bits()), make([]byte, 2*d.Bits())
		for x := range uint32(1 << d.Bits()) {
			for y := range uint32(1 << d.Bits()) {
				at := int(x+y) % 16
				setCode(a, at, d.Bits(), x)
				setCode(b, at, d.Bits(), y)
				compare(a, b)
				setCode(a, at, d.Bits(), 0)
				setCode(b, at, d.Bits(), 0)
			}
		}
	}
}

// TestLengths compares blocks of all lengths up to 70 elements. Between none and all of the elements
// differ, and some are not finite.
func TestLengths(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, d := range []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32} {
		width := d.Bits() / 8
		for n := 1; n <= 70; n++ {
			for _, percent := range []int{0, 1, 3, 10, 50, 100} {
				a := make([]byte, n*width)
				for i := range n {
					x := math.Float32bits(float32(random.NormFloat64()))
					if random.IntN(1000) == 0 {
						x = 0x7f80_0000 | random.Uint32() // infinite, or NaN
					}
					if d != safetensors.F32 {
						x >>= 16
					}
					setCode(a, i, d.Bits(), x)
				}
				b := append([]byte(nil), a...)
				for i := range n {
					if random.IntN(100) < percent {
						b[i*width+random.IntN(width)] ^= 1 << random.IntN(8)
					}
				}
				got, norm, err := ValuesAndNorm(list(d, a...), list(d, b...), Tolerance{})
				require.NoError(t, err)
				if got.Squares == 0 {
					_, norm = slowly(d, a, b) // it is not computed then
				}
				requireAsSlowly(t, d, a, b, got, norm)
			}
		}
	}
}
