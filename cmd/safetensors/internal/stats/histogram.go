package stats

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
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

// A table counts codes of 16 bits.
type table struct {
	n    [1 << 16]int64
	used [1 << 8]bool // which 256 neighbors may be there: in most tensors few, and there may be many tensors
}

// A count is the number of times that a code, or the value it stands for, is there.
type count struct {
	code uint16
	n    int64
}

func (t *table) add(code uint16, n int64) {
	t.n[code] += n
	t.used[code>>8] = true
}

func (t *table) addAll(counts []count) {
	for _, c := range counts {
		t.add(c.code, c.n)
	}
}

// addCodes counts the little-endian codes in b, the last of which may lack a byte, 0.
func (t *table) addCodes(b []byte) {
	for ; len(b) >= 2; b = b[2:] {
		t.add(binary.LittleEndian.Uint16(b), 1)
	}
	if len(b) > 0 {
		t.add(uint16(b[0]), 1)
	}
}

// drain returns what was counted, in the order of codes, and empties the table.
func (t *table) drain() (counts []count) {
	for high, used := range t.used {
		if !used {
			continue
		}
		neighbors := t.n[high<<8:][:1<<8]
		for low, n := range neighbors {
			if n > 0 {
				counts = append(counts, count{uint16(high<<8 + low), n})
			}
		}
		clear(neighbors)
		t.used[high] = false
	}
	return counts
}

// unpack returns the counts of codes of a dtype, several of which may have been counted
// as one of 16 bits, and the last of size bytes with a byte 0.
func unpack(counts []count, d safetensors.DType, size int64) []count {
	if d.Bits() == 16 {
		return counts
	}
	var totals [1 << 8]int64
	bits := d.Bits()
	totals[0] = -(size % 2) * int64(8/bits)
	for _, c := range counts {
		for shift := 0; shift < 16; shift += bits {
			totals[c.code>>shift&(1<<bits-1)] += c.n
		}
	}
	counts = counts[:0]
	for code, n := range totals {
		if n > 0 {
			counts = append(counts, count{uint16(code), n})
		}
	}
	return counts
}

// valuesOf returns the numbers that the codes of a dtype of 4, 8 or 16 bits stand for.
func valuesOf(d safetensors.DType) []float64 {
	var codes []byte
	bits := d.Bits()
	for first := 0; first < 1<<bits; first += 16 / bits {
		word := 0
		for k := range 16 / bits {
			word |= (first + k) << (k * bits)
		}
		codes = binary.LittleEndian.AppendUint16(codes, uint16(word))
	}
	t, _ := safetensors.NewTensor(d, []int{1 << bits}, codes)
	all, _ := numbers.Append(nil, t) // which has every number of so few bits
	return all
}
