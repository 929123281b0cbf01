package stats

import (
	"math"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// A result describes some values. It has the same bits on every processor: explicit conversions of
// products prevent fused operations, which not all processors have. A result does not include
// counts of buckets, so that the results of many tensors fit into memory.
type result struct {
	zeros, nan, inf int64
	min, max        float64
	n               int64   // number of finite values
	mean, squares   float64 // mean of the values, and sum of the squares of their differences from it, in the unit of the values
}

func newResult() result { return result{min: math.Inf(1), max: math.Inf(-1)} }

// unit returns the exponent of the power of two that is the unit for summing values from least to
// most. It is 0 unless a sum of squares in float64 could overflow or underflow. If there are no
// values, or all are zero, it is the smallest exponent.
func unit(least, most float64) int {
	switch x := max(-least, most); {
	case x > 0x1p480:
		return 600
	case x < 0x1p-400:
		return -600
	}
	return 0
}

// join adds the values that o describes to those of r (Chan, Golub, LeVeque 1979).
func (r *result) join(o result) {
	r.zeros += o.zeros
	r.nan += o.nan
	r.inf += o.inf
	if o.n == 0 {
		return
	}
	least, most := min(r.min, o.min), max(r.max, o.max)
	r.rescale(unit(least, most))
	o.rescale(unit(least, most))
	r.min, r.max = least, most
	n := r.n + o.n
	delta, share := o.mean-r.mean, float64(o.n)/float64(n)
	r.squares += o.squares + float64(delta*delta*float64(r.n)*share)
	r.mean += float64(delta * share)
	r.n = n
}

// rescale converts mean and squares to the unit with this exponent.
func (r *result) rescale(exponent int) {
	shift := unit(r.min, r.max) - exponent
	r.mean, r.squares = math.Ldexp(r.mean, shift), math.Ldexp(r.squares, 2*shift)
}

// look returns the result for numbers, and counts their buckets in t. It sums the differences from
// one of the numbers, so that the sums are exact enough even if the numbers are close to each other
// and far from zero.
func look[T float32 | float64](numbers []T, t *table) result {
	r := newResult()
	shift := 0.0
	for _, x := range numbers {
		if x-x == 0 {
			shift = float64(x)
			break
		}
	}
	// There are four sums of each kind, because additions that wait for each other would take most
	// of the time.
	var sums, squares [4]float64
	for i, number := range numbers {
		x := float64(number)
		switch {
		case x == 0:
			r.zeros++
		case x != x:
			r.nan++
			continue
		case x-x != 0:
			r.inf++
			continue
		}
		if x <= r.min {
			r.min = min(r.min, x) // -0 is less than 0
		}
		if x >= r.max {
			r.max = max(r.max, x)
		}
		d := x - shift
		sums[i%4] += d
		squares[i%4] += float64(d * d)
		t.add(uint32(bucketOf(x)), 1)
	}
	if r.n = int64(len(numbers)) - r.nan - r.inf; r.n == 0 {
		return r
	}
	sum, square := (sums[0]+sums[1])+(sums[2]+sums[3]), (squares[0]+squares[1])+(squares[2]+squares[3])
	if exponent := unit(r.min, r.max); exponent != 0 {
		factor := math.Ldexp(1, -exponent)
		shift, sum, square = shift*factor, 0, 0
		for _, x := range numbers {
			if x-x == 0 {
				d := float64(float64(x)*factor) - shift
				sum += d
				square += float64(d * d)
			}
		}
	}
	r.mean = shift + sum/float64(r.n)
	r.squares = max(0, square-sum*sum/float64(r.n))
	return r
}

// readCodes sets the result from the counts of all codes. values are the numbers of the codes. It
// returns the counts of the buckets of these numbers, in the memory of counts.
func (r *result) readCodes(values []float64, counts []count) []count {
	sum := 0.0
	finite := counts[:0]
	for _, c := range counts {
		x := values[c.code]
		switch {
		case math.IsNaN(x):
			r.nan += c.n
			continue
		case math.IsInf(x, 0):
			r.inf += c.n
			continue
		case x == 0:
			r.zeros += c.n
		}
		r.min, r.max = min(r.min, x), max(r.max, x)
		r.n += c.n
		sum += float64(x * float64(c.n))
		finite = append(finite, c)
	}
	if r.n == 0 {
		return nil
	}
	r.mean = sum / float64(r.n)
	for i, c := range finite {
		x := values[c.code]
		r.squares += float64((x - r.mean) * (x - r.mean) * float64(c.n))
		finite[i].code = uint32(bucketOf(x))
	}
	return finite
}

// summary returns the summary of the values that r describes, given the counts of their buckets.
func (r *result) summary(counts []count) Summary {
	s := Summary{Count: r.n + r.nan + r.inf, Zeros: r.zeros, NaN: r.nan, Inf: r.inf}
	if r.n == 0 {
		none := numbers.Float(math.NaN())
		s.Min, s.Max, s.Mean, s.Std = none, none, none, none
		s.Histogram = Histogram{Edges: []numbers.Float{}, Counts: []int64{}}
		return s
	}
	exponent := unit(r.min, r.max)
	s.Min, s.Max = numbers.Float(r.min), numbers.Float(r.max)
	s.Mean = numbers.Float(math.Ldexp(r.mean, exponent))
	// Because of rounding, the result could exceed the largest float64.
	s.Std = numbers.Float(min(math.Ldexp(math.Sqrt(r.squares/float64(r.n)), exponent), math.MaxFloat64))
	s.Histogram = newHistogram(r.min, r.max, counts)
	return s
}
