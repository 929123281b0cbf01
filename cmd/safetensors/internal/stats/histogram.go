package stats

import (
	"math"
)

// buckets counts finite values by what truncating them to a bfloat16, towards zero,
// gives. That is fine enough for any histogram, and needs no second look at the
// values once their range is known.
type buckets [1 << 16]int64

func (b *buckets) add(o *buckets) {
	for i, n := range o {
		b[i] += n
	}
}

// bucketOf returns the bucket of a finite value. Values beyond float32 are in the
// buckets of the largest.
func bucketOf(x float64) uint16 {
	const kept = math.MaxUint64 &^ (1<<45 - 1) // sign, exponent and 7 bits
	y := float32(math.Float64frombits(math.Float64bits(x) & kept))
	bits := math.Float32bits(y)
	if bits&0x7f800000 == 0x7f800000 {
		bits = bits&0x80000000 | 0x7f7f0000
	}
	return uint16(bits >> 16)
}

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
	Edges  []float64
	Counts []int64
}

// histogram returns the histogram of values from least to most.
func (b *buckets) histogram(least, most float64) Histogram {
	h := newHistogram(least, most)
	for bucket, n := range b {
		if n > 0 {
			h.add(uint16(bucket), n)
		}
	}
	return h.Histogram
}

// A filling is a Histogram that is being filled.
type filling struct {
	Histogram
	starts []int // of each bin, as ordered has them
}

// newHistogram returns an empty histogram of values from least to most.
func newHistogram(least, most float64) *filling {
	h := &filling{Histogram: Histogram{Edges: []float64{least}}, starts: []int{math.MinInt}}
	for i := 1; i < bins; i++ {
		share := float64(i) / bins
		bucket := bucketOf(least*(1-share) + most*share) // most-least could overflow
		edge := float64(math.Float32frombits(uint32(bucket) << 16))
		if edge > h.Edges[len(h.Edges)-1] && edge < most { // the range may have fewer buckets
			h.Edges = append(h.Edges, edge)
			h.starts = append(h.starts, ordered(bucket))
		}
	}
	h.Edges = append(h.Edges, most)
	h.Counts = make([]int64, len(h.starts))
	return h
}

// add adds n values of a bucket.
func (h *filling) add(bucket uint16, n int64) {
	bin := len(h.starts) - 1
	for ordered(bucket) < h.starts[bin] {
		bin--
	}
	h.Counts[bin] += n
}
