package stats

import (
	"math"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/moments"
)

// A worker is the memory of one goroutine.
type worker struct {
	block   []byte
	counter            // of the tensor that it looks at: codes or buckets
	all     [2]buckets // of the tensors that it finished: of floats, of others
}

// look counts the elements of a block.
func (w *worker) look(k kind, b []byte, p *pass) {
	switch {
	case k.coded():
		w.addCodes(b)
	case k == float32s:
		*p = passOf(moments.Of(b))
		w.addUpper(b)
	default:
		w.sum(k, b, p)
	}
	if k == float64s {
		p.rescale(b)
	}
}

// A pass is what one look at the values of a block gives. The sums are those of the
// differences to shift, so that they are exact enough where the values are close to
// each other and far from zero. Shift and sums are in the unit of the values.
type pass struct {
	zeros, nan, inf int64
	min, max        float64
	n               int64 // finite values
	shift           float64
	sum, squares    float64
}

func passOf(m moments.Moments) pass {
	return pass{m.Zeros, m.NaN, m.Inf, float64(m.Min), float64(m.Max), m.Finite, m.Shift, m.Sum, m.Squares}
}

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

// sum looks at the numbers of a block.
func (w *worker) sum(k kind, b []byte, p *pass) {
	size := k.size()
	w.expect(len(b) / size)
	p.min, p.max = math.Inf(1), math.Inf(-1)
	for ; len(b) >= size; b = b[size:] {
		if x := k.number(b); p.add(x) {
			w.add(bucketOf(x))
		}
	}
}

// rescale sums the float64 of a block again where that needs another unit than 1.
func (p *pass) rescale(b []byte) {
	exponent := unit(p.min, p.max)
	if exponent == 0 {
		return
	}
	factor := math.Ldexp(1, -exponent)
	p.shift, p.sum, p.squares = p.shift*factor, 0, 0
	for ; p.min < p.max && len(b) >= 8; b = b[8:] {
		if x := float64s.number(b); !math.IsNaN(x) && !math.IsInf(x, 0) {
			d := x*factor - p.shift
			p.sum += d
			p.squares += d * d
		}
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
	if p.n == 0 {
		p.shift = x
	}
	p.n++
	p.min, p.max = min(p.min, x), max(p.max, x)
	d := x - p.shift
	p.sum += d
	p.squares += d * d
	return true
}
