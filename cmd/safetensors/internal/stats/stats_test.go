package stats

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/stretchr/testify/require"
)

// must returns v, of a call that cannot fail in the test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// described is Describe, which cannot fail in the test.
func described(tensors ...safetensors.Tensor) ([]Summary, Summary) {
	summaries, total, err := Describe(tensors)
	return must(summaries, err), total
}

// list returns a tensor of one dimension.
func list[T safetensors.Element](d safetensors.DType, values ...T) safetensors.Tensor {
	return must(safetensors.NewTensor(d, []int{binary.Size(values) * 8 / d.Bits()}, values))
}

// naive describes numbers in the most obvious way.
func naive(values []float64) (s Summary) {
	least, most, sum, squares := math.Inf(1), math.Inf(-1), 0.0, 0.0
	var finite []float64
	for _, x := range values {
		switch {
		case math.IsNaN(x):
			s.NaN++
			continue
		case math.IsInf(x, 0):
			s.Inf++
			continue
		case x == 0:
			s.Zeros++
		}
		least, most = min(least, x), max(most, x)
		finite = append(finite, x)
		sum += x
	}
	n := float64(len(finite))
	mean := sum / n
	for _, x := range finite {
		squares += (x - mean) * (x - mean)
	}
	if len(finite) == 0 {
		least, most = math.NaN(), math.NaN()
	}
	s.Count = int64(len(values))
	s.Min, s.Max, s.Mean, s.Std = numbers.Float(least), numbers.Float(most), numbers.Float(mean), numbers.Float(math.Sqrt(squares/n))
	return s
}

// figures returns the range, the mean and the deviation.
func figures(s Summary) (least, most, mean, std float64) {
	return float64(s.Min), float64(s.Max), float64(s.Mean), float64(s.Std)
}

func requireSame(t *testing.T, want, got Summary) {
	t.Helper()
	require.Equal(t, []int64{want.Count, want.Zeros, want.NaN, want.Inf}, []int64{got.Count, got.Zeros, got.NaN, got.Inf})
	least, most, mean, std := figures(want)
	gotLeast, gotMost, gotMean, gotStd := figures(got)
	if math.IsNaN(least) {
		require.True(t, math.IsNaN(gotLeast) && math.IsNaN(gotMost) && math.IsNaN(gotMean) && math.IsNaN(gotStd))
		return
	}
	require.Equal(t, []float64{least, most}, []float64{gotLeast, gotMost})
	scale := max(math.Abs(least), math.Abs(most), 1e-300)
	require.InDelta(t, mean/scale, gotMean/scale, 1e-12)
	require.InDelta(t, std/scale, gotStd/scale, 1e-9)
	total := int64(0)
	for _, n := range got.Histogram.Counts {
		total += n
	}
	require.Equal(t, want.Count-want.NaN-want.Inf, total, "the histogram counts all finite values")
}

// random returns n numbers of which some are special.
func random(rng *rand.Rand, n int, mean, std float64) []float64 {
	special := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1e-42, -1e-42}
	values := make([]float64, n)
	for i := range values {
		values[i] = rng.NormFloat64()*std + mean
		if rng.IntN(50) == 0 {
			values[i] = special[rng.IntN(len(special))]
		}
	}
	return values
}

// TestDescribeFloats compares the summaries of tensors of many lengths and magnitudes with sums in
// two passes.
func TestDescribeFloats(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []float64
	var tensors []safetensors.Tensor
	for _, n := range []int{0, 1, 2, 3, 7, 1000, 131072, 131073, 400_001} {
		for _, std := range []float64{1, 1e-5, 1e30} {
			values := random(rng, n, 0.25, std)
			narrow := make([]float32, n)
			for i, x := range values {
				narrow[i] = float32(x)
				values[i] = float64(narrow[i])
			}
			x := list(safetensors.F32, narrow...)
			tensors = append(tensors, x)
			summaries, _ := described(x)
			requireSame(t, naive(values), summaries[0])
			fromWide, _ := described(list(safetensors.F64, values...))
			requireSame(t, naive(values), fromWide[0])
			require.Equal(t, fromWide[0].Histogram, summaries[0].Histogram, "the fast loop agrees with its slow twin")
			all = append(all, values...)
		}
	}
	summaries, total := described(tensors...)
	requireSame(t, naive(all), total)
	for range 5 { // the result does not depend on who is first
		again, totalAgain := described(tensors...)
		require.Equal(t, total, totalAgain)
		require.Equal(t, summaries[5], again[5])
		require.Equal(t, summaries[len(summaries)-1], again[len(again)-1])
	}
}

// TestDescribeDTypes compares every dtype with the numbers that numbers.Append gives.
func TestDescribeDTypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for d := range safetensors.DTypes() {
		for _, n := range []int{9_000_001, 600_001, 3002, 1} { // several blocks, for all goroutines and for one; less than a block
			if n > 1e6 && d != safetensors.F8_E5M2 && d != safetensors.F4 {
				continue
			}
			for n*d.Bits()%8 != 0 {
				n++
			}
			data := make([]byte, n*d.Bits()/8)
			for i := range data {
				data[i] = byte(rng.Uint32())
				if d == safetensors.F64 && i%8 == 7 {
					data[i] &= 0xbf // a sum of the largest overflows
				}
			}
			x := list(d, data...)
			summaries, total := described(x)
			want := naive(must(numbers.Append(nil, x)))
			requireSame(t, want, summaries[0])
			requireSame(t, want, total)
		}
	}
}

// TestDescribeExtremes compares numbers whose sums or squares are beyond those of a
// float64 with their naive summary, computed from numbers of moderate size.
func TestDescribeExtremes(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	const n = blockSize/8 + 5
	moderate := make([]float64, n) // multiples of 1/256, so that tiny ones are exact, too
	for i := range moderate {
		moderate[i] = float64(rng.IntN(512)-200) / 256
	}
	want := naive(moderate)
	zeros := list(safetensors.F32, make([]float32, n)...)
	wantTotal := naive(append(make([]float64, n), moderate...))
	for _, exponent := range []int{1022, 1000, 600, 512, 481, 480, -400, -401, -511, -700, -1000, -1066} {
		values := make([]float64, n)
		for i, x := range moderate {
			values[i] = math.Ldexp(x, exponent)
		}
		for blocks, end := range []int{5, 1000, n} { // of one block, and of several
			x := list(safetensors.F64, values[:end]...)
			s, total := described(x, zeros)
			if blocks < 2 {
				requireScaled(t, naive(moderate[:end]), exponent, s[0])
				continue
			}
			requireScaled(t, want, exponent, s[0])
			requireScaled(t, wantTotal, exponent, total)
		}
	}
	constant := list(safetensors.F64, float64(math.MaxFloat64), math.MaxFloat64, math.MaxFloat64)
	s, _ := described(constant, constant)
	require.Equal(t, []numbers.Float{math.MaxFloat64, 0}, []numbers.Float{s[0].Mean, s[0].Std})
	for _, values := range [][]float64{
		{-math.MaxFloat64, math.MaxFloat64},
		{0, 1e-200}, {0, 1e200}, {-1e300, 1e300},
	} {
		values = slices.Repeat(values, 25) // the deviation is rounded
		s, _ := described(list(safetensors.F64, values...))
		least, most := values[0], values[len(values)-1]
		_, _, mean, std := figures(s[0])
		require.InDelta(t, (least/2+most/2)/most, mean/most, 1e-15)
		require.InDelta(t, 1, std/(most/2-least/2), 1e-15)
	}
}

// requireScaled requires the summary of numbers that are those of want times
// 2^exponent.
func requireScaled(t *testing.T, want Summary, exponent int, got Summary) {
	t.Helper()
	got.Histogram, got.Typical = Histogram{}, Histogram{}
	for _, x := range []*numbers.Float{&got.Min, &got.Max, &got.Mean, &got.Std} {
		*x = numbers.Float(math.Ldexp(float64(*x), -exponent))
	}
	delta := max(1e-12, math.Ldexp(1, -1074-exponent)) // that of the smallest float64
	require.InDelta(t, float64(want.Mean), float64(got.Mean), delta, "2^%d", exponent)
	require.InDelta(t, float64(want.Std), float64(got.Std), delta, "2^%d", exponent)
	want.Mean, want.Std, got.Mean, got.Std = 0, 0, 0, 0
	require.Equal(t, want, got, "2^%d", exponent)
}

// TestDescribeClaims describes tensors of more bytes than there is memory for their
// blocks, as a header may claim.
func TestDescribeClaims(t *testing.T) {
	for d, dim := range map[safetensors.DType]int{safetensors.F4: 1 << 19, safetensors.F64: 1 << 15} {
		x := must(safetensors.NewTensorAt(d, []int{dim, 1 << 14, 1 << 14, 1 << 14}, strings.NewReader("a few bytes")))
		_, _, err := Describe([]safetensors.Tensor{x})
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
}

// TestDescribeManyBlocks joins the results of blocks more than once.
func TestDescribeManyBlocks(t *testing.T) {
	defer func(blocks int64) { atOnce = blocks }(atOnce)
	atOnce = 2
	values := random(rand.New(rand.NewPCG(11, 12)), 5*blockSize/8+3, 3, 1)
	s, _ := described(list(safetensors.F64, values...))
	requireSame(t, naive(values), s[0])
}

// TestDescribeAnywhere describes tensors with other numbers of processors.
func TestDescribeAnywhere(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var tensors []safetensors.Tensor
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.F16, safetensors.F8_E4M3, safetensors.I32} {
		for _, size := range []int{8 << 10, 1 << 20, small + 4} {
			data := make([]byte, size)
			for i := range data {
				data[i] = byte(rng.Uint32()) & 0x73 // no NaN
			}
			tensors = append(tensors, list(d, data...))
		}
	}
	want, total := described(tensors...)
	for _, n := range []int{1, 2, 5} {
		previous := runtime.GOMAXPROCS(n)
		got, gotTotal := described(tensors...)
		runtime.GOMAXPROCS(previous)
		require.Equal(t, want, got)
		require.Equal(t, total, gotTotal)
	}
}

// TestDescribeNothingFinite: there is no range, and no bar.
func TestDescribeNothingFinite(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, values := range [][]float64{{nan}, {inf, -inf}, {-inf, nan, inf, nan, inf}} {
		for _, d := range []safetensors.DType{safetensors.F32, safetensors.F64, safetensors.BF16} {
			x := must(list(safetensors.F64, values...).Convert(d))
			s, total := described(x, x)
			requireSame(t, naive(values), s[1])
			requireSame(t, naive(slices.Repeat(values, 2)), total)
			require.Empty(t, total.Histogram.Counts)
		}
	}
}

// TestDescribeExactly: sums far from zero lose nothing, -0 is less than 0, and every
// processor finds the same bits, whether it can fuse operations or not.
func TestDescribeExactly(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	values := make([]float32, 1<<17+3)
	sum := new(big.Float).SetPrec(500)
	for i := range values {
		values[i] = float32(1000 + float64(rng.IntN(1<<12))/(1<<20))
		sum.Add(sum, big.NewFloat(float64(values[i])))
	}
	s, _ := described(list(safetensors.F32, values...))
	mean, _ := sum.Quo(sum, big.NewFloat(float64(len(values)))).Float64()
	_, _, gotMean, gotStd := figures(s[0])
	require.InDelta(t, 1, gotMean/mean, 1e-15)
	require.Equal(t, []uint64{0x408f4003fd343432, 0x3f527c41f6105390}, []uint64{math.Float64bits(gotMean), math.Float64bits(gotStd)})
	for _, values := range [][]float32{{0, float32(math.Copysign(0, -1)), 0}, {float32(math.Copysign(0, -1)), 0}} {
		s, _ := described(list(safetensors.F32, values...))
		require.Equal(t, []bool{true, false}, []bool{math.Signbit(float64(s[0].Min)), math.Signbit(float64(s[0].Max))})
	}
}

// TestHistogram: values that are spread evenly fill the bins evenly between their minimum and their
// maximum, and equal values are one bin.
func TestHistogram(t *testing.T) {
	values := make([]float32, 1001)
	for i := range values {
		values[i] = float32(i-500) / 100
	}
	s, _ := described(list(safetensors.F32, values...))
	h := s[0].Histogram
	require.Len(t, h.Counts, bins)
	require.Equal(t, []numbers.Float{-5, 5}, []numbers.Float{h.Edges[0], h.Edges[bins]})
	for i, n := range h.Counts {
		require.InDelta(t, 50, n, 4)
		require.InDelta(t, float64(i)/2-5, float64(h.Edges[i]), 0.03)
	}
	s, _ = described(list(safetensors.F32, float32(7), 7, 7))
	require.Equal(t, Histogram{[]numbers.Float{7, 7}, []int64{3}}, s[0].Histogram)
}

// requireCounts requires that a histogram has the counts that numpy.histogram returns for its edges,
// and that the edges ascend.
func requireCounts(t *testing.T, values []float64, h Histogram) {
	t.Helper()
	last := len(h.Counts) - 1
	if last < 0 {
		return
	}
	want := make([]int64, len(h.Counts))
	for _, x := range values {
		if math.IsInf(x, 0) || !(float64(h.Edges[0]) <= x && x <= float64(h.Last())) {
			continue
		}
		bin := last
		for x < float64(h.Edges[bin]) {
			bin--
		}
		want[bin]++
	}
	require.Equal(t, want, h.Counts, "%v", h.Edges)
	for i := 1; i < last; i++ {
		require.Less(t, h.Edges[i-1], h.Edges[i])
	}
}

// requireHistograms requires exact counts in the histograms of a tensor and of a total. The range of
// the first is that of all finite values, and Typical leaves out at most a thousandth at each end.
func requireHistograms(t *testing.T, x safetensors.Tensor) {
	t.Helper()
	values := must(numbers.Append(nil, x))
	summaries, total := described(x)
	requireCounts(t, values, summaries[0].Histogram)
	requireCounts(t, values, total.Histogram)
	requireCounts(t, values, total.Typical)
	want := naive(values)
	if finite := want.Count - want.NaN - want.Inf; finite > 0 {
		require.Equal(t, []numbers.Float{want.Min, want.Max}, []numbers.Float{summaries[0].Histogram.Edges[0], summaries[0].Histogram.Last()})
		for _, n := range total.Typical.Counts {
			finite -= n
		}
		if len(total.Typical.Counts) > 0 {
			require.LessOrEqual(t, finite, 2*(want.Count/1000))
		}
	}
}

// adversarial returns numbers near the edges that histograms from least to most may have, and special ones.
func adversarial(least, most float64) []float64 {
	values := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 1e-42, -1e-42, 1e-300, -1e-300}
	near := func(x float64) {
		narrow := float32(x)
		for _, next := range []float32{float32(math.Inf(-1)), float32(math.Inf(1))} {
			values = append(values, x, math.Nextafter(x, float64(next)), float64(math.Nextafter32(narrow, next)))
		}
	}
	for i := range 4*bins + 1 {
		share := float64(i) / (4 * bins)
		x := bucketOf(least*(1-share) + most*share).value()
		near(x)
		near(-x)
	}
	return slices.DeleteFunc(values, func(x float64) bool { return x-x == 0 && (x < least || x > most) })
}

// TestHistogramExactly compares the histograms of every dtype with the counts of numpy.histogram, for random bytes
// and for numbers at the edges and next to them, with equal upper bits.
func TestHistogramExactly(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	limits := []float64{1, 0x1p-126, 0x1p-140, 0x1p-149, 100, 60_000, math.MaxFloat32, 0x1.fep127, 1e300, math.MaxFloat64}
	for d := range safetensors.DTypes() {
		data := make([]byte, 24<<10)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		requireHistograms(t, list(d, data...))
		for i := range data[:len(data)/8] { // small integers, of both signs
			clear(data[8*i+1 : 8*i+8])
			if k := d.Bits() / 8; k > 1 && data[8*i]&1 == 0 {
				copy(data[8*i+1:8*i+min(k, 8)], "\xff\xff\xff\xff\xff\xff\xff")
			}
		}
		requireHistograms(t, list(d, data...))
		if !d.IsFloat() {
			continue
		}
		for _, limit := range limits {
			for _, least := range []float64{-limit, -limit / 3, 0, limit / 2} {
				values := adversarial(least, limit)
				for range 3000 {
					values = append(values, least+rng.Float64()*(limit-least))
				}
				x, err := list(safetensors.F64, values...).Convert(d)
				if err == nil && x.Size() > 0 {
					requireHistograms(t, must(safetensors.NewTensor(d, x.Shape(), must(safetensors.Append[byte](nil, x)))))
				}
			}
		}
	}
	near := make([]float32, 100_000)
	for i := range near {
		near[i] = float32(0.004*rng.NormFloat64() - 1)
	}
	requireHistograms(t, list(safetensors.F32, near...))
}

// TestHistogramIntegers compares the histograms of integers near the edges with the counts of numpy.histogram.
func TestHistogramIntegers(t *testing.T) {
	for shift := range 63 {
		most := int64(1)<<shift + 300
		var values []int64
		for _, x := range adversarial(-float64(most), float64(most)) {
			if x-x == 0 && math.Abs(x) < 1<<62 {
				values = append(values, int64(x), int64(x)-1, int64(x)+1)
			}
		}
		requireHistograms(t, list(safetensors.I64, values...))
		narrow := make([]int32, len(values))
		for i, x := range values {
			narrow[i] = int32(x)
		}
		requireHistograms(t, list(safetensors.I32, narrow...))
	}
}

// TestHistogramBeyondFloat32: the bins are few there, but each value is in its own.
func TestHistogramBeyondFloat32(t *testing.T) {
	values := []float64{-1e300, -9e299, -1e100, -1, 0, 1, 1e100, 9e299, 1e300}
	s, _ := described(list(safetensors.F64, values...))
	h := s[0].Histogram
	require.Greater(t, len(h.Counts), 1)
	requireCounts(t, values, h)
}

// BenchmarkDescribe describes 16 Mi elements, in one tensor and in many small ones.
func BenchmarkDescribe(b *testing.B) {
	rng := rand.New(rand.NewPCG(5, 6))
	values := make([]float32, 16<<20)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16, safetensors.F8_E4M3, safetensors.I64} {
		x := list(safetensors.F32, values...)
		if d != safetensors.F32 && d != safetensors.I64 {
			x = must(x.Convert(d))
		}
		data := must(safetensors.Append[byte](nil, x))
		for _, size := range []int{len(data), 1 << 20, 64 << 10, 1 << 10} {
			var tensors []safetensors.Tensor
			for chunk := range slices.Chunk(data, size) {
				tensors = append(tensors, list(d, chunk...))
			}
			b.Run(fmt.Sprintf("%s/%dKiB", d, size>>10), func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				for b.Loop() {
					_, _, err := Describe(tensors)
					require.NoError(b, err)
				}
			})
		}
	}
}

// TestTypical: one outlier, and the numbers of positions, leave the histogram of the
// weights as it is.
func TestTypical(t *testing.T) {
	weights := make([]float32, 4000)
	for i := range weights {
		weights[i] = float32(i%200-100) / 256
	}
	outliers := list(safetensors.F32, float32(1e30), -1e30, float32(math.NaN()), float32(math.Inf(1)))
	_, total := described(list(safetensors.F32, weights...), outliers, list(safetensors.I64, make([]int64, 10_000)...))
	h := total.Typical
	require.Equal(t, []numbers.Float{-100.0 / 256, 99.0 / 256}, []numbers.Float{h.Edges[0], h.Edges[len(h.Edges)-1]})
	require.Len(t, h.Counts, bins)
	sum := int64(0)
	for _, n := range h.Counts {
		sum += n
		require.Greater(t, n, int64(100))
	}
	require.Equal(t, int64(4000), sum)

	_, total = described(list(safetensors.I64, make([]int64, 10)...))
	require.Empty(t, total.Typical.Counts)
}
