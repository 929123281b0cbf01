package stats

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// bucketOf returns the bucket of a finite value: the bits of the bfloat16 that results from
// truncating the value towards zero. Buckets are fine enough for any histogram, so that values need
// not be read again when their range is known. Values beyond the range of float32 are in the
// buckets of the largest values.
func bucketOf(x float64) uint16 {
	const kept = math.MaxUint64 &^ (1<<45 - 1) // the bits of the sign, the exponent and the first 7 bits of the mantissa
	y := float32(math.Float64frombits(math.Float64bits(x) & kept))
	bits := math.Float32bits(y)
	if bits&0x7f800000 == 0x7f800000 {
		bits = bits&0x80000000 | largest<<16
	}
	return uint16(bits >> 16)
}

// largest is the bucket of the largest values, without the sign.
const largest = 0x7f7f

// ordered returns a number for a bucket. These numbers sort like the values in the buckets.
func ordered(bucket uint16) int {
	if bucket&0x8000 != 0 {
		return -int(bucket & 0x7fff)
	}
	return int(bucket)
}

// bins is the largest number of bins of a histogram.
const bins = 20

// A Histogram counts the finite values in ranges of about the same width. Counts[i] is the number
// of values from Edges[i] up to, but not including, Edges[i+1]; the last range includes its upper
// edge. Values are truncated to 8 significant bits, like the inner edges, before they are counted.
type Histogram struct {
	Edges  []numbers.Float `json:"edges"`
	Counts []int64         `json:"counts"`
}

// Last returns the last edge.
func (h Histogram) Last() numbers.Float { return h.Edges[len(h.Edges)-1] }

// newHistogram returns the histogram of finite values between least and most, given the counts of
// their buckets.
func newHistogram(least, most float64, counts []count) Histogram {
	h := Histogram{Edges: []numbers.Float{numbers.Float(least)}}
	starts := []int{math.MinInt} // start of each bin, as a number that ordered returns
	for i := 1; i < bins; i++ {
		share := float64(i) / bins
		bucket := bucketOf(least*(1-share) + most*share) // most-least could overflow
		edge := numbers.Float(math.Float32frombits(uint32(bucket) << 16))
		if bucket == 0x8000|largest {
			continue // the previous bin also holds all values below this edge
		}
		if edge > h.Edges[len(h.Edges)-1] && edge < numbers.Float(most) { // the range may have fewer buckets than bins
			h.Edges = append(h.Edges, edge)
			starts = append(starts, ordered(bucket))
		}
	}
	h.Edges = append(h.Edges, numbers.Float(most))
	h.Counts = make([]int64, len(starts))
	bin := 0
	for _, c := range counts {
		at := ordered(c.code) // c mostly falls into the same bin as the previous bucket
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

// typicalHistogram returns the histogram of the finite values in some buckets, without the smallest
// and the largest thousandth of the values: a single outlier would otherwise leave only one bar.
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
	n [1 << 16]int64
	// used reports, for each block of 256 adjacent codes, whether any of them may have been counted.
	// Most tensors use few codes, so drain is fast because it skips the other blocks.
	used [1 << 8]bool
}

// A count is the number of times that a code, or the value that it represents, occurs.
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

// addCodes counts the little-endian codes of two bytes in b. If the length of b is odd, it adds a
// byte 0 to the last code.
func (t *table) addCodes(b []byte) {
	for ; len(b) >= 2; b = b[2:] {
		t.add(binary.LittleEndian.Uint16(b), 1)
	}
	if len(b) > 0 {
		t.add(uint16(b[0]), 1)
	}
}

// drain returns the counts in the order of their codes, and empties the table.
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

// unpack returns the counts of the codes of dtype d, given the counts of codes of 16 bits. A code
// of 16 bits may consist of several codes of d. size is the number of counted bytes. If it is odd,
// unpack leaves out the byte 0 that addCodes has added.
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

// valuesOf returns the numbers that the codes of a dtype represent, by code. The dtype must have 4,
// 8 or 16 bits.
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
	all, _ := numbers.Append(nil, t) // never fails for dtypes of so few bits
	return all
}
