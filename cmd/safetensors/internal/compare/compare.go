// Package compare measures how different the values of two tensors are.
package compare

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A Difference describes how different two tensors of the same shape are.
type Difference struct {
	Different   int64   // number of elements that are not equal within the tolerance
	MaxAbsolute float64 // largest |a-b| of these elements; NaN if one has no |a-b|, because a or b is not finite and they differ
	MaxRelative float64 // largest |a-b|/|b| of these elements where b is not zero; NaN if MaxAbsolute is NaN
	Squares     float64 // sum of |a-b|² over all elements, also those that are equal within the tolerance; NaN if MaxAbsolute is NaN
	At          []int   // indices of the element with MaxAbsolute; nil if it is 0 for all that are not equal
}

// A Tolerance is the largest difference between equal elements: |a-b| ≤ Absolute + Relative×|b|.
// NaNs are equal to each other. The zero Tolerance is stricter if both tensors have the same dtype:
// then elements are equal only if their bits are, so that 0 and -0, and NaNs with different bits, differ.
type Tolerance struct{ Absolute, Relative float64 }

// A ReadError is the error of reading one of two tensors. Of is 0 for the first and 1 for the second.
type ReadError struct {
	Of  int
	Err error
}

func (e *ReadError) Error() string { return e.Err.Error() }
func (e *ReadError) Unwrap() error { return e.Err }

// blockElements is the number of elements that are compared at a time. That many elements fill
// whole bytes in every dtype.
const blockElements = 64 << 10

// Values compares two tensors of the same shape on all processors.
func Values(a, b safetensors.Tensor, tolerance Tolerance) (Difference, error) {
	d, _, err := ValuesAndNorm(a, b, tolerance)
	return d, err
}

// ValuesAndNorm compares two tensors as Values does. It also returns norm, the sum of |b|² over all
// finite elements of b. If Squares is 0, it does not compute norm, and returns 0 for it.
func ValuesAndNorm(a, b safetensors.Tensor, tolerance Tolerance) (d Difference, norm float64, err error) {
	if !slices.Equal(a.Shape(), b.Shape()) {
		return d, 0, fmt.Errorf("%v and %v have different shapes", a, b)
	}
	p := &pair{both: [2]safetensors.Tensor{a, b}, same: a.DType() == b.DType(), tolerance: tolerance, at: -1}
	p.idle.New = func() any { return new(memory) }
	count := numbers.Count(a)
	err = parallel.Blocks(runtime.GOMAXPROCS(0), count, blockElements, p.block)
	p.found.Squares, _ = p.total()
	if err == nil && p.found.Squares != 0 { // the norm includes the blocks that are equal
		err = parallel.Do(runtime.GOMAXPROCS(0), int64(len(p.equal)), func(i int64) error {
			return p.addNorm(p.equal[i], min(blockElements, count-p.equal[i]))
		})
		_, norm = p.total()
	}
	if p.at >= 0 {
		p.found.At = indices(p.at, a.Shape())
	}
	return p.found, norm, err
}

// A pair holds two tensors and the result of comparing them.
type pair struct {
	both      [2]safetensors.Tensor
	same      bool // whether both have the same dtype
	tolerance Tolerance

	idle  sync.Pool // *memory values that no goroutine is using
	mu    sync.Mutex
	found Difference // result so far, without Squares
	sums  []blockSums
	equal []int64 // indices of the first elements of the blocks whose bytes are equal
	at    int64   // index of the element with the largest difference so far, or -1
}

// A blockSums holds the sums of the block that starts at element first: of the squares of the
// differences, and of the squares of the finite elements of b.
type blockSums struct {
	first         int64
	squares, norm float64
}

// total adds the sums of all blocks so far, in the order of the blocks and not in the order in which
// they were compared, because the order of additions affects the last digits.
func (p *pair) total() (squares, norm float64) {
	slices.SortFunc(p.sums, func(a, b blockSums) int { return cmp.Compare(a.first, b.first) })
	for _, s := range p.sums {
		squares += s.squares
		norm += s.norm
	}
	return squares, norm
}

// block compares n elements, starting at index first.
func (p *pair) block(first, n int64) (err error) {
	m := p.idle.Get().(*memory)
	defer p.idle.Put(m)
	for k, t := range p.both {
		bits := int64(t.DType().Bits())
		m.bytes[k] = slices.Grow(m.bytes[k][:0], int(n*bits/8))[:n*bits/8]
		if _, err := t.ReadAt(m.bytes[k], first*bits/8); err != nil {
			return &ReadError{k, term.Bare(err)}
		}
	}
	if p.same && bytes.Equal(m.bytes[0], m.bytes[1]) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.equal = append(p.equal, first)
		return nil
	}
	norm, err := m.squares(p.both[1].DType(), n)
	if err != nil {
		return err
	}
	d, at, err := p.compare(n, m)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found.Different += d.Different
	p.sums = append(p.sums, blockSums{first, d.Squares, norm})
	p.found.MaxRelative = max(p.found.MaxRelative, d.MaxRelative) // max returns NaN if one of them is NaN
	larger := p.at < 0 || exceeds(d.MaxAbsolute, p.found.MaxAbsolute)
	if at != nowhere && (larger || first < p.at && !exceeds(p.found.MaxAbsolute, d.MaxAbsolute)) {
		if at == anywhere {
			if at, err = p.find(n, m, d.MaxAbsolute); err != nil {
				return err
			}
		}
		p.found.MaxAbsolute, p.at = d.MaxAbsolute, first+at
	}
	return nil
}

// addNorm adds the norm of n elements of b, starting at index first.
func (p *pair) addNorm(first, n int64) error {
	m := p.idle.Get().(*memory)
	defer p.idle.Put(m)
	bits := int64(p.both[1].DType().Bits())
	m.bytes[1] = slices.Grow(m.bytes[1][:0], int(n*bits/8))[:n*bits/8]
	if _, err := p.both[1].ReadAt(m.bytes[1], first*bits/8); err != nil {
		return &ReadError{1, term.Bare(err)}
	}
	norm, err := m.squares(p.both[1].DType(), n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sums = append(p.sums, blockSums{first, 0, norm})
	return err
}

// indices returns the indices of the element with index i in row-major order.
func indices(i int64, shape []int) []int {
	at := make([]int, len(shape))
	for d := len(shape) - 1; d >= 0; d-- {
		at[d] = int(i % int64(shape[d]))
		i /= int64(shape[d])
	}
	return at
}
