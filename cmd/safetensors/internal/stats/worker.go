package stats

import (
	"encoding/binary"
	"math"

	"github.com/gosafetensors/safetensors"
)

// A worker is the memory of one goroutine.
type worker struct {
	block []byte
	all   buckets // of the tensors that it finished

	// The counts of one tensor, by code or by bucket. There are two tables, so that
	// equal neighbors do not wait for each other.
	even, odd [1 << 16]uint32
	pending   int64   // elements in them
	overflow  buckets // what did not fit
}

// flush moves the counts to a sum.
func (w *worker) flush(sum *buckets) {
	for i := range sum {
		sum[i] += int64(w.even[i]) + int64(w.odd[i])
	}
	clear(w.even[:])
	clear(w.odd[:])
	w.pending = 0
	if w.overflow != (buckets{}) {
		sum.add(&w.overflow)
		w.overflow = buckets{}
	}
}

// look counts the elements of a block.
func (w *worker) look(k kind, d safetensors.DType, b []byte, p *pass) {
	if w.pending += int64(len(b)); w.pending > math.MaxUint32 { // more bytes than elements
		var sum buckets
		w.flush(&sum)
		w.overflow = sum
		w.pending = int64(len(b))
	}
	switch {
	case k.coded() && d.Bits() == 8:
		w.count8(b)
	case k.coded():
		w.count16(b)
	case k == float32s:
		w.sum32(b, p)
	default:
		p.shift = firstFinite(k.decode(d, b[:min(len(b), 64)]))
		w.sum(k, b, p)
	}
}

func (w *worker) count8(b []byte) {
	for ; len(b) >= 2; b = b[2:] {
		w.even[b[0]]++
		w.odd[b[1]]++
	}
	for _, x := range b {
		w.even[x]++
	}
}

func (w *worker) count16(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		x := binary.LittleEndian.Uint64(b)
		w.even[uint16(x)]++
		w.odd[uint16(x>>16)]++
		w.even[uint16(x>>32)]++
		w.odd[uint16(x>>48)]++
	}
	for ; len(b) >= 2; b = b[2:] {
		w.even[binary.LittleEndian.Uint16(b)]++
	}
}

// A pass is what one look at the values of a block gives. The sums are those of the
// differences to shift, so that they are exact enough where the values are close to
// each other and far from zero.
type pass struct {
	zeros, nan, inf int64
	min, max        float64
	n               int64 // finite values
	shift           float64
	sum, squares    float64
}

func newPass() pass { return pass{min: math.Inf(1), max: math.Inf(-1)} }

func (p *pass) result() result {
	r := newResult()
	r.zeros, r.nan, r.inf = p.zeros, p.nan, p.inf
	if n := float64(p.n); n > 0 {
		r.min, r.max, r.n = p.min, p.max, p.n
		r.mean = p.shift + p.sum/n
		r.squares = max(0, p.squares-p.sum*p.sum/n)
	}
	return r
}

// firstFinite returns the first finite number, else 0.
func firstFinite(values []float64) float64 {
	for _, x := range values {
		if !math.IsNaN(x) && !math.IsInf(x, 0) {
			return x
		}
	}
	return 0
}

// look looks at numbers, the first ones of a block.
func (p *pass) look(values []float64) {
	p.shift = firstFinite(values)
	for _, x := range values {
		p.add(x)
	}
}

// add looks at one number, and reports whether it is finite.
func (p *pass) add(x float64) (finite bool) {
	switch {
	case math.IsNaN(x):
		p.nan++
		return false
	case math.IsInf(x, 0):
		p.inf++
		return false
	case x == 0:
		p.zeros++
	}
	p.n++
	p.min, p.max = min(p.min, x), max(p.max, x)
	d := x - p.shift
	p.sum += d
	p.squares += d * d
	return true
}

// sum looks at the numbers of a block. It is the slow twin of sum32.
func (w *worker) sum(k kind, b []byte, p *pass) {
	size := k.size()
	for ; len(b) >= size; b = b[size:] {
		if x := k.number(b); p.add(x) {
			w.even[bucketOf(x)]++
		}
	}
}

// sum32 is sum for float32, faster: it has two sums that do not wait for each other,
// and does not look at each number for what is rare.
func (w *worker) sum32(b []byte, p *pass) {
	p.shift = firstFinite(float32s.decode(safetensors.F32, b[:min(len(b), 64)]))
	shift := p.shift
	least, most := float32(math.Inf(1)), float32(math.Inf(-1))
	var sum0, sum1, squares0, squares1 float64
	var n, zeros int64
	even, odd := &w.even, &w.odd
	for ; len(b) >= 8; b = b[8:] {
		both := binary.LittleEndian.Uint64(b)
		if both&0x7f800000_00000000 == 0x7f800000_00000000 || both&0x7f800000 == 0x7f800000 { // an infinity or a NaN
			w.sum(float32s, b[:8], p)
			continue
		}
		even[uint16(both>>16)]++
		odd[uint16(both>>48)]++
		x0, x1 := math.Float32frombits(uint32(both)), math.Float32frombits(uint32(both>>32))
		if x0 == 0 {
			zeros++
		}
		if x1 == 0 {
			zeros++
		}
		if x0 < least {
			least = x0
		}
		if x1 < least {
			least = x1
		}
		if x0 > most {
			most = x0
		}
		if x1 > most {
			most = x1
		}
		d0, d1 := float64(x0)-shift, float64(x1)-shift
		sum0 += d0
		sum1 += d1
		squares0 += d0 * d0
		squares1 += d1 * d1
		n += 2
	}
	w.sum(float32s, b, p)
	if n > 0 {
		p.n += n
		p.zeros += zeros
		p.min, p.max = min(p.min, float64(least)), max(p.max, float64(most))
		p.sum += sum0 + sum1
		p.squares += squares0 + squares1
	}
}
