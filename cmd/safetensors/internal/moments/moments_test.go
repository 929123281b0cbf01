package moments

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// encode returns the bytes of numbers.
func encode(values []float32) (b []byte) {
	for _, x := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

// specials are what a kernel may get wrong.
var specials = []float32{
	0, float32(math.Copysign(0, -1)), float32(math.NaN()), -float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
	math.SmallestNonzeroFloat32, -math.SmallestNonzeroFloat32, math.MaxFloat32, -math.MaxFloat32,
	math.Float32frombits(0x7f800001), math.Float32frombits(0xffffffff), math.Float32frombits(0x007fffff),
}

// random returns n numbers, one in rarity of them special.
func random(rng *rand.Rand, n, rarity int, mean, std float64) []float32 {
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(rng.NormFloat64()*std + mean)
		if rng.IntN(rarity) == 0 {
			values[i] = specials[rng.IntN(len(specials))]
		}
	}
	return values
}

// slowly looks at numbers one by one, each in its lane.
func slowly(values []float32) (m Moments) {
	m.Min, m.Max = float32(math.Inf(1)), float32(math.Inf(-1))
	var sums, squares [4]float64
	for i, x := range values {
		switch wide := float64(x); {
		case math.IsNaN(wide):
			m.NaN++
			continue
		case math.IsInf(wide, 0):
			m.Inf++
			continue
		case x == 0:
			m.Zeros++
		}
		if m.Finite == 0 {
			m.Shift = float64(x)
		}
		m.Finite++
		m.Min, m.Max = min(m.Min, x), max(m.Max, x)
		d := float64(x) - m.Shift
		sums[i%4] += d
		squares[i%4] += float64(d * d)
	}
	m.Sum = (sums[0] + sums[1]) + (sums[2] + sums[3])
	m.Squares = (squares[0] + squares[1]) + (squares[2] + squares[3])
	return m
}

// bitsOf makes 0 and -0 differ.
func bitsOf(m Moments) []uint64 {
	return []uint64{
		uint64(m.Finite), uint64(m.Zeros), uint64(m.NaN), uint64(m.Inf), uint64(math.Float32bits(m.Min)), uint64(math.Float32bits(m.Max)),
		math.Float64bits(m.Shift), math.Float64bits(m.Sum), math.Float64bits(m.Squares),
	}
}

func TestTwins(t *testing.T) { withKernels(t, testTwins) }

func testTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 100 {
		for _, rarity := range []int{1, 2, 30, 1 << 30} {
			for _, std := range []float64{0, 1e-42, 0.02, 1e30} {
				values := random(rng, n, rarity, 0.25*std, std)
				b := make([]byte, 1, 4*n+1) // no alignment
				b = append(b, encode(values)...)[1:]
				require.Equal(t, bitsOf(slowly(values)), bitsOf(Of(b)), "%v", values)
			}
		}
	}
	values := random(rng, 200_003, 50, 3, 1)
	require.Equal(t, bitsOf(slowly(values)), bitsOf(Of(encode(values))))
}

func TestNothingFinite(t *testing.T) { withKernels(t, testNothingFinite) }

func testNothingFinite(t *testing.T) {
	for n := range 40 {
		values := make([]float32, n)
		for i := range values {
			values[i] = specials[2+i%4]
		}
		m := Of(encode(values))
		require.Equal(t, int64(n), m.NaN+m.Inf)
		require.Zero(t, m.Finite)
		require.Equal(t, []float32{float32(math.Inf(1)), float32(math.Inf(-1))}, []float32{m.Min, m.Max})
		require.Zero(t, m.Sum)
	}
}

// TestExact compares the sums with exact ones.
func TestExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	values := random(rng, 1<<17, 1<<30, 1000, 1e-3)
	m := Of(encode(values))
	sum := new(big.Float).SetPrec(500)
	for _, x := range values {
		sum.Add(sum, big.NewFloat(float64(x)))
	}
	want, _ := sum.Quo(sum, big.NewFloat(float64(len(values)))).Float64()
	require.InDelta(t, 1, (m.Shift+m.Sum/float64(m.Finite))/want, 1e-15)
}

func BenchmarkOf(b *testing.B) {
	data := encode(random(rand.New(rand.NewPCG(5, 6)), 1<<17, 1<<30, 0, 0.02))
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		Of(data)
	}
}
