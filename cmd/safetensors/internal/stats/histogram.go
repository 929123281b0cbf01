package stats

import (
	"cmp"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// bucketOf returns the bucket of a finite value: what truncating it to a bfloat16,
// towards zero, gives. That is fine enough for any histogram, and needs no second look at
// the values once their range is known. Values beyond float32 are in the buckets of the
// largest.
func bucketOf(x float64) uint16 {
	const kept = math.MaxUint64 &^ (1<<45 - 1) // sign, exponent and 7 bits
	y := float32(math.Float64frombits(math.Float64bits(x) & kept))
	bits := math.Float32bits(y)
	if bits&0x7f800000 == 0x7f800000 {
		bits = bits&0x80000000 | largest<<16
	}
	return uint16(bits >> 16)
}

// largest is the bucket of the largest values, without the sign.
const largest = 0x7f7f

// ordered returns a number that compares as the values of a bucket do.
func ordered(bucket uint16) int {
	if bucket&0x8000 != 0 {
		return -int(bucket & 0x7fff)
	}
	return int(bucket)
}

// bins is the length of a histogram.
const bins = 20

// A Histogram counts the finite values in ranges of about the same width. Counts[i]
// is that of the values from Edges[i] up to Edges[i+1]; the last one includes its
// edge. Before they are counted, values are truncated to 8 significant bits, as the
// inner edges are.
type Histogram struct {
	Edges  []numbers.Float `json:"edges"`
	Counts []int64         `json:"counts"`
}

// Last returns the last edge.
func (h Histogram) Last() numbers.Float { return h.Edges[len(h.Edges)-1] }

// newHistogram returns the histogram of the finite values in some buckets, which are
// from least to most.
func newHistogram(least, most float64, counts []count) Histogram {
	h := Histogram{Edges: []numbers.Float{numbers.Float(least)}}
	starts := []int{math.MinInt} // of each bin, as ordered has them
	for i := 1; i < bins; i++ {
		share := float64(i) / bins
		bucket := bucketOf(least*(1-share) + most*share) // most-least could overflow
		edge := numbers.Float(math.Float32frombits(uint32(bucket) << 16))
		if bucket == 0x8000|largest {
			continue // it has all values below its edge, too
		}
		if edge > h.Edges[len(h.Edges)-1] && edge < numbers.Float(most) { // the range may have fewer buckets
			h.Edges = append(h.Edges, edge)
			starts = append(starts, ordered(bucket))
		}
	}
	h.Edges = append(h.Edges, numbers.Float(most))
	h.Counts = make([]int64, len(starts))
	bin := 0
	for _, c := range counts {
		at := ordered(c.code) // mostly in the bin of the one before
		for at < starts[bin] {
			bin--
		}
		for bin+1 < len(starts) && at >= starts[bin+1] {
			bin++
		}
		h.Counts[bin] += c.n
	}
	return h
}

// typicalHistogram returns the histogram of the finite values in some buckets but for the
// least and the largest thousandth of them: a single outlier would leave one bar.
func typicalHistogram(counts []count) Histogram {
	slices.SortFunc(counts, func(a, b count) int { return cmp.Compare(ordered(a.code), ordered(b.code)) })
	cut := int64(0)
	for _, c := range counts {
		cut += c.n
	}
	cut /= 1000
	for range 2 {
		left := cut
		for len(counts) > 0 && counts[0].n <= left {
			left -= counts[0].n
			counts = counts[1:]
		}
		slices.Reverse(counts)
	}
	if len(counts) == 0 {
		return Histogram{}
	}
	value := func(c count) float64 { return float64(math.Float32frombits(uint32(c.code) << 16)) }
	return newHistogram(value(counts[0]), value(counts[len(counts)-1]), counts)
}
