// Package compare finds how far the values of two tensors are apart.
package compare

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A Difference says how far two tensors of one shape are apart.
type Difference struct {
	Different   int64   // elements that are not equal within the tolerance
	MaxAbsolute float64 // the largest |a-b|; NaN if only one of two elements is finite
	MaxRelative float64 // the largest |a-b|/|b| of elements that are not zero in b
	Squares     float64 // the sum of all |a-b|²; NaN if MaxAbsolute is
	At          []int   // the indices of the largest |a-b|, nil if there is none
}

// A Tolerance is how far apart elements may be: |a-b| ≤ Absolute + Relative×|b|.
// NaNs are equal. Without a tolerance, elements are equal if their bits are.
type Tolerance struct{ Absolute, Relative float64 }

// blockElements is how many elements are compared at once. It is a multiple of those
// that fill whole bytes of any dtype.
const blockElements = 64 << 10

// Values compares two tensors of the same shape on all processors.
func Values(a, b safetensors.Tensor, tolerance Tolerance) (Difference, error) {
	if !slices.Equal(a.Shape(), b.Shape()) {
		return Difference{}, fmt.Errorf("%v and %v have different shapes", a, b)
	}
	p := &pair{both: [2]safetensors.Tensor{a, b}, same: a.DType() == b.DType(), tolerance: tolerance, at: -1}
	p.idle.New = func() any { return new(memory) }
	err := parallel.Blocks(runtime.GOMAXPROCS(0), numbers.Count(a), blockElements, p.block)
	if p.at >= 0 {
		p.found.At = indices(p.at, a.Shape())
	}
	return p.found, err
}

type pair struct {
	both      [2]safetensors.Tensor
	same      bool // of one dtype
	tolerance Tolerance

	idle  sync.Pool // of *memory
	mu    sync.Mutex
	found Difference
	at    int64 // the element with the largest difference, -1 if there is none
}

// A memory holds two blocks.
type memory struct {
	bytes    [2][]byte
	elements [2]elements
}

// block compares the n elements from number first on.
func (p *pair) block(first, n int64) (err error) {
	m := p.idle.Get().(*memory)
	defer p.idle.Put(m)
	for k, t := range p.both {
		bits := int64(t.DType().Bits())
		m.bytes[k] = slices.Grow(m.bytes[k][:0], int(n*bits/8))[:n*bits/8]
		if _, err := t.ReadAt(m.bytes[k], first*bits/8); err != nil {
			return err
		}
	}
	if p.same && bytes.Equal(m.bytes[0], m.bytes[1]) {
		return nil
	}
	for k, t := range p.both {
		if m.elements[k], err = elementsOf(t.DType(), n, m.bytes[k], m.elements[k].numbers); err != nil {
			return err
		}
	}
	d, at := p.compare(int(n), m)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found.Different += d.Different
	p.found.Squares += d.Squares
	p.found.MaxRelative = max(p.found.MaxRelative, d.MaxRelative) // NaN if one of them is
	if at >= 0 {
		at += first
		if p.at < 0 || exceeds(d.MaxAbsolute, p.found.MaxAbsolute) || at < p.at && !exceeds(p.found.MaxAbsolute, d.MaxAbsolute) {
			p.found.MaxAbsolute, p.at = d.MaxAbsolute, at
		}
	}
	return nil
}

// exceeds reports whether a difference is larger than another one. None is larger than NaN.
func exceeds(a, b float64) bool { return !(a <= b) && !math.IsNaN(b) }

// compare compares the n elements in m. at is the one with the largest
// difference, -1 if all are equal.
func (p *pair) compare(n int, m *memory) (d Difference, at int64) {
	at = -1
	u, v := m.elements[0], m.elements[1]
	exact := p.tolerance == Tolerance{}
	width := 0 // of an element of whole bytes
	if bits := p.both[0].DType().Bits(); bits%8 == 0 {
		width = bits / 8
	}
	for i := range n {
		a, aImaginary, aRest := u.at(i)
		b, bImaginary, bRest := v.at(i)
		absolute, size := apart(a, b, aRest-bRest), math.Abs(b)
		if u.complex || v.complex {
			upright := apart(aImaginary, bImaginary, 0)
			absolute, size = min(math.Hypot(absolute, upright), math.MaxFloat64), math.Hypot(b, bImaginary)
		}
		equal := absolute == 0 || absolute <= p.tolerance.Absolute+p.tolerance.Relative*size
		switch {
		case !exact || !equal || !p.same:
		case width > 0:
			equal = bytes.Equal(m.bytes[0][i*width:][:width], m.bytes[1][i*width:][:width])
		default: // below a byte there are two zeros, but no NaN
			equal = math.Signbit(a) == math.Signbit(b)
		}
		if !equal {
			d.Different++
		}
		if absolute == 0 {
			continue
		}
		d.Squares += absolute * absolute
		if at < 0 || exceeds(absolute, d.MaxAbsolute) {
			d.MaxAbsolute, at = absolute, int64(i)
		}
		if size != 0 && !math.IsInf(size, 0) {
			d.MaxRelative = max(d.MaxRelative, absolute/size)
		}
	}
	return d, at
}

// apart returns |a-b+rest|, NaN if only one of a and b is finite.
func apart(a, b, rest float64) float64 {
	if absolute := math.Abs(a - b + rest); absolute <= math.MaxFloat64 {
		return absolute
	}
	return apartBeyond(a, b)
}

// apartBeyond is apart where a-b is not finite.
func apartBeyond(a, b float64) float64 {
	finite := func(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }
	switch {
	case math.IsNaN(a) && math.IsNaN(b), a == b: // infinities
		return 0
	case finite(a) && finite(b):
		return math.MaxFloat64
	}
	return math.NaN()
}

// elements are the numbers of some elements. Integers of 64 bits may be beyond the 2^53
// up to which float64 represents all: such an element is the sum of its number and a rest.
type elements struct {
	numbers []float64
	complex bool // two numbers each
	rests   []float64
}

func (e *elements) at(i int) (re, im, rest float64) {
	switch {
	case e.complex:
		return e.numbers[2*i], e.numbers[2*i+1], 0
	case e.rests != nil:
		return e.numbers[i], 0, e.rests[i]
	}
	return e.numbers[i], 0, 0
}

// elementsOf returns n elements of a dtype, their numbers in buf if it has the room.
func elementsOf(d safetensors.DType, n int64, data []byte, buf []float64) (e elements, err error) {
	t, err := safetensors.NewTensor(d, []int{int(n)}, data)
	if err != nil {
		return e, err
	}
	switch d {
	case safetensors.C64:
		e.complex = true
	case safetensors.I64:
		e.rests, err = restsOf[int64](t)
	case safetensors.U64:
		e.rests, err = restsOf[uint64](t)
	}
	if err == nil {
		e.numbers, err = numbers.Append(buf[:0], t)
	}
	return e, err
}

// restsOf returns what is missing from the float64 of each integer. Each step is exact.
func restsOf[T int64 | uint64](t safetensors.Tensor) ([]float64, error) {
	const low = 1<<11 - 1
	all, err := safetensors.Append([]T(nil), t)
	rests := make([]float64, len(all))
	for i, x := range all {
		rests[i] = float64(x&^low) - float64(x) + float64(x&low)
	}
	return rests, err
}

// indices returns where element number i of a shape is.
func indices(i int64, shape []int) []int {
	at := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d] = int(i % int64(shape[d]))
		i /= int64(shape[d])
	}
	return at
}
