package stats

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// A bucket is a value that bfloat16 represents, or all values between two of these that are
// adjacent. Edges of histograms are values of bfloat16, so each bucket is in one bin. Buckets are fine
// enough for any histogram, so that values need not be read again when their range is known.
//
// The lower 16 bits are the bits of the bfloat16 that results from truncating a value towards zero.
// The flag between is set if the value differs from that.
type bucket uint32

const between bucket = 1 << 16

// largest has the bits of the largest bfloat16. With the flag between it is the bucket of all values
// above it.
const largest = 0x7f7f

// bucketOf returns the bucket of a finite value.
func bucketOf(x float64) bucket {
	const kept = math.MaxUint64 &^ (1<<45 - 1) // the bits of the sign, the exponent and the first 7 bits of the mantissa
	y := float32(math.Float64frombits(math.Float64bits(x) & kept))
	bits := math.Float32bits(y)
	if bits&0x7f800000 == 0x7f800000 {
		bits = bits&0x80000000 | largest<<16
	}
	b := bucket(bits >> 16)
	if b.value() != x {
		b |= between
	}
	return b
}

// value returns the value of a bucket, or the end of the bucket that is nearer to zero.
func (b bucket) value() float64 { return float64(math.Float32frombits(uint32(b) << 16)) }

// ordered returns a number for a bucket. These numbers sort like the values in the buckets. They are
// even for buckets of one value.
func (b bucket) ordered() int {
	n := 2 * int(b&0x7fff)
	if b&between != 0 {
		n++
	}
	if b&0x8000 != 0 {
		return -n
	}
	return n
}

// valueAt returns the value of the bucket for which ordered returns n, an even number. It is infinite
// beyond the largest bfloat16.
func valueAt(n int) float64 {
	if n < 0 {
		return -valueAt(-n)
	}
	return bucket(n / 2).value()
}

// bins is the largest number of bins of a histogram.
const bins = 20

// A Histogram counts the finite values in ranges of about the same width. Counts[i] is the number
// of values from Edges[i] up to, but not including, Edges[i+1]; the last range includes its upper
// edge.
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
		start := bucketOf(least*(1-share)+most*share) &^ between // most-least could overflow
		edge := numbers.Float(start.value())
		if edge > h.Edges[len(h.Edges)-1] && edge < numbers.Float(most) { // the range may have fewer buckets than bins
			h.Edges = append(h.Edges, edge)
			starts = append(starts, start.ordered())
		}
	}
	h.Edges = append(h.Edges, numbers.Float(most))
	h.Counts = make([]int64, len(starts))
	bin := 0
	for _, c := range counts {
		at := c.bucket().ordered() // c mostly falls into the same bin as the previous bucket
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
// and the largest thousandth of the values: a single outlier would otherwise leave only one bar. All
// values are between least and most. The outer edges are values of bfloat16, unless they are least and most.
func typicalHistogram(least, most float64, counts []count) Histogram {
	slices.SortFunc(counts, func(a, b count) int { return cmp.Compare(a.bucket().ordered(), b.bucket().ordered()) })
	cut := int64(0)
	for _, c := range counts {
		cut += c.n
	}
	cut /= 1000
	first, last := 0, len(counts)-1
	for left := cut; first <= last && counts[first].n <= left; first++ {
		left -= counts[first].n
	}
	for left := cut; first <= last && counts[last].n <= left; last-- {
		left -= counts[last].n
	}
	if first > last {
		return Histogram{}
	}
	// The edges are rounded outwards, and both are part of the range: so a value at an edge counts, even if it is among those
	// that are left out.
	lower, upper := counts[first].bucket().ordered()&^1, (counts[last].bucket().ordered()+1)&^1
	counts = slices.DeleteFunc(counts, func(c count) bool { return c.bucket().ordered() < lower || c.bucket().ordered() > upper })
	return newHistogram(max(least, valueAt(lower)), min(most, valueAt(upper)), counts)
}

// A table counts codes of 16 bits, or buckets.
type table struct {
	n [1 << 17]int64
	// used reports, for each block of 256 adjacent codes, whether any of them may have been counted.
	// Most tensors use few codes, so drain is fast because it skips the other blocks.
	used [1 << 9]bool
}

// A count is the number of times that a code, or a value in a bucket, occurs.
type count struct {
	code uint32
	n    int64
}

// bucket returns the code as a bucket.
func (c count) bucket() bucket { return bucket(c.code) }

func (t *table) add(code uint32, n int64) {
	code %= 1 << 17 // so that the compiler leaves out the checks of the index
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
		t.add(uint32(binary.LittleEndian.Uint16(b)), 1)
	}
	if len(b) > 0 {
		t.add(uint32(b[0]), 1)
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
				counts = append(counts, count{uint32(high<<8 + low), n})
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
			counts = append(counts, count{uint32(code), n})
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
