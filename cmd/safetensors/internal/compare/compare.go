// Package compare finds how far the values of two tensors are apart.
package compare

import (
	"bytes"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numpy"
	"golang.org/x/sync/errgroup"
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
	n := elements(a)
	p := &pair{a: a, b: b, same: a.DType() == b.DType(), tolerance: tolerance, n: n, at: -1}
	blocks := (n + blockElements - 1) / blockElements
	var next atomic.Int64
	var group errgroup.Group
	for range min(int64(runtime.GOMAXPROCS(0)), blocks) {
		group.Go(func() error {
			var x, y []byte
			for {
				i := next.Add(1) - 1
				if i >= blocks {
					return nil
				}
				var err error
				if x, y, err = p.block(i, x, y); err != nil {
					next.Store(blocks)
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		return Difference{}, err
	}
	d := p.found
	if p.at >= 0 {
		d.At = indices(p.at, a.Shape())
	}
	return d, nil
}

// elements returns the number of elements. Tensor.Len is an int.
func elements(t safetensors.Tensor) int64 {
	return int64(uint64(t.Size()) * 8 / uint64(t.DType().Bits())) // the bits of a tensor fit a uint64
}

// A pair is two tensors that are being compared.
type pair struct {
	a, b      safetensors.Tensor
	same      bool // of one dtype
	tolerance Tolerance
	n         int64

	mu    sync.Mutex
	found Difference
	at    int64 // the element with the largest difference, -1 if there is none
}

// block compares block number i. x and y are memory for it.
func (p *pair) block(i int64, x, y []byte) ([]byte, []byte, error) {
	first := i * blockElements
	n := min(blockElements, p.n-first)
	x, err := read(p.a, first, n, x)
	if err != nil {
		return x, y, err
	}
	if y, err = read(p.b, first, n, y); err != nil {
		return x, y, err
	}
	if p.same && bytes.Equal(x, y) {
		return x, y, nil
	}
	u, err := numbersOf(p.a.DType(), n, x)
	if err != nil {
		return x, y, err
	}
	v, err := numbersOf(p.b.DType(), n, y)
	if err != nil {
		return x, y, err
	}
	d, at := p.compare(u, v, x, y)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found.Different += d.Different
	p.found.Squares += d.Squares
	p.found.MaxRelative = worse(p.found.MaxRelative, d.MaxRelative)
	if at >= 0 {
		at += first
		most := worse(p.found.MaxAbsolute, d.MaxAbsolute)
		tied := same(d.MaxAbsolute, p.found.MaxAbsolute)
		if p.at < 0 || !tied && same(most, d.MaxAbsolute) || tied && at < p.at {
			p.at = at
		}
		p.found.MaxAbsolute = most
	}
	return x, y, nil
}

// worse returns the larger difference; NaN is the largest.
func worse(a, b float64) float64 {
	if math.IsNaN(a) || math.IsNaN(b) {
		return math.NaN()
	}
	return max(a, b)
}

func same(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }

// compare compares numbers. at is the one with the largest difference, -1 if all are
// equal. x and y are the bytes of the elements.
func (p *pair) compare(u, v numbers, x, y []byte) (d Difference, at int64) {
	at = -1
	exact := p.tolerance == Tolerance{}
	width := 0 // of an element of whole bytes
	if p.same && len(x)%len(u.rounded) == 0 {
		width = len(x) / len(u.rounded)
	}
	for i, a := range u.rounded {
		b := v.rounded[i]
		absolute, size := apart(a, b, u.rests.at(i)-v.rests.at(i)), math.Abs(b)
		if u.imaginary != nil || v.imaginary != nil {
			upright := apart(u.imaginary.at(i), v.imaginary.at(i), 0)
			absolute, size = min(math.Hypot(absolute, upright), math.MaxFloat64), math.Hypot(b, v.imaginary.at(i))
		}
		equal := absolute == 0 || absolute <= p.tolerance.Absolute+p.tolerance.Relative*size
		if exact && equal && width > 0 {
			equal = bytes.Equal(x[i*width:][:width], y[i*width:][:width])
		}
		if !equal {
			d.Different++
		}
		if absolute == 0 {
			continue
		}
		d.Squares += absolute * absolute
		if at < 0 || !(absolute <= d.MaxAbsolute) && !math.IsNaN(d.MaxAbsolute) {
			d.MaxAbsolute, at = absolute, int64(i)
		}
		if size != 0 && !math.IsInf(size, 0) {
			d.MaxRelative = worse(d.MaxRelative, absolute/size)
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

// read reads the bytes of n elements from number first on.
func read(t safetensors.Tensor, first, n int64, buf []byte) ([]byte, error) {
	bits := int64(t.DType().Bits())
	size := n * bits / 8
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	_, err := t.ReadAt(buf, first*bits/8)
	return buf, err
}

// numbers are those of some elements. Integers of 64 bits may be beyond the 2^53 up to
// which float64 represents all: such a number is the sum of its float64 and a rest.
type numbers struct {
	rounded          []float64 // the real parts of complex numbers
	rests, imaginary parts     // nil if all are 0
}

type parts []float64

func (p parts) at(i int) float64 {
	if p == nil {
		return 0
	}
	return p[i]
}

// numbersOf returns the numbers of n elements.
func numbersOf(d safetensors.DType, n int64, data []byte) (numbers, error) {
	t, err := safetensors.NewTensor(d, []int{int(n)}, data)
	if err != nil {
		return numbers{}, err
	}
	v, err := numpy.Read(t)
	switch {
	case v.Floats != nil || err != nil:
		return numbers{rounded: v.Floats}, err
	case d == safetensors.I64:
		return numbers{rounded: convert(v.Ints, toFloat), rests: convert(v.Ints, restOf)}, nil
	case d == safetensors.U64:
		return numbers{rounded: convert(v.Uints, toFloat), rests: convert(v.Uints, restOf)}, nil
	case v.Ints != nil:
		return numbers{rounded: convert(v.Ints, toFloat)}, nil
	case v.Uints != nil:
		return numbers{rounded: convert(v.Uints, toFloat)}, nil
	case v.Bools != nil:
		return numbers{rounded: convert(v.Bools, func(x bool) float64 {
			if x {
				return 1
			}
			return 0
		})}, nil
	}
	return numbers{
		rounded:   convert(v.Complex, func(c complex64) float64 { return float64(real(c)) }),
		imaginary: convert(v.Complex, func(c complex64) float64 { return float64(imag(c)) }),
	}, nil
}

func toFloat[T int64 | uint64](x T) float64 { return float64(x) }

// restOf returns what is missing from float64(x). Each step is exact.
func restOf[T int64 | uint64](x T) float64 {
	const low = 1<<11 - 1
	return float64(x&^low) - float64(x) + float64(x&low)
}

func convert[T any](values []T, number func(T) float64) []float64 {
	all := make([]float64, len(values))
	for i, x := range values {
		all[i] = number(x)
	}
	return all
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
