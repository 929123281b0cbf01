package safetensors

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A Range selects indices of one dimension. All, Span, From and At make one, and By sets its
// step. The zero Range is All().
type Range struct {
	bounded     bool // whether it selects from start up to stop, or up to the end of the dimension if open is set
	open        bool
	drop        bool // whether it selects only start, and drops the dimension
	start, stop int

	// step is 0 for a step of 1. A step s below 1 is stored as s-1, so that it is negative and an error
	// when the Range is used.
	step int
}

// All selects a whole dimension.
func All() Range { return Range{} }

// Span selects the indices from start up to, not including, stop. Negative indices
// count from the end. Unlike in Python, an index beyond the dimension is an error.
func Span(start, stop int) Range { return Range{bounded: true, start: start, stop: stop} }

// From selects the indices from start to the end of the dimension. A negative start counts
// from the end. Unlike in Python, a start beyond the dimension is an error.
func From(start int) Range { return Range{bounded: true, open: true, start: start} }

// At selects one index and drops the dimension. A negative index counts from the end.
func At(i int) Range { return Range{drop: true, start: i} }

// By selects every step-th index of r, starting with the first. Slice refuses a step
// below 1.
func (r Range) By(step int) Range {
	switch {
	case step < 1:
		step = max(step, -math.MaxInt) - 1 // negative even for a step of 0
	case step == 1:
		step = 0 // so that equal ranges are equal values
	}
	r.step = step
	return r
}

// String returns the range as Python writes it: ":", "2:5", "3:", "-1", "::2".
// ParseRanges reads it.
func (r Range) String() string {
	s := ":"
	switch {
	case r.open:
		s = fmt.Sprintf("%d:", r.start)
	case r.bounded:
		s = fmt.Sprintf("%d:%d", r.start, r.stop)
	case r.drop:
		return fmt.Sprint(r.start)
	}
	if r.step > 1 {
		s += fmt.Sprintf(":%d", r.step)
	}
	return s
}

// resolve returns the indices that r selects in a dimension with this size, or the rule that r
// breaks.
func (r Range) resolve(size int) (s selection, broken string) {
	fromStart := func(i int) int {
		if i < 0 {
			return i + size
		}
		return i
	}
	first, stop := 0, size
	switch {
	case r.drop:
		if first = fromStart(r.start); first < 0 || first >= size {
			return s, fmt.Sprintf("index %d is out of range for size %d", r.start, size)
		}
		stop = first + 1
	case r.bounded:
		first = fromStart(r.start)
		if !r.open {
			stop = fromStart(r.stop)
		}
		if first < 0 || first > size || stop < 0 || stop > size {
			return s, fmt.Sprintf("range [%v] is out of range for size %d", r, size)
		}
		if first > stop {
			return s, fmt.Sprintf("range [%v] ends before it starts, for size %d", r, size)
		}
	}
	if r.step < 0 {
		return s, fmt.Sprintf("the step %d of range [%v] is below 1", r.step+1, r)
	}
	n := stop - first
	step := max(1, min(r.step, n)) // a step longer than n selects the same indices as a step of n, but products with it could overflow
	return selection{first, stepsWithin(n, step), step, r.drop}, ""
}

// stepsWithin returns the number of multiples of step, from 0 on, that are below n; 0 or less if
// n is negative.
func stepsWithin(n, step int) int { return n/step + min(n%step, 1) }

// Slice returns the part of t that the ranges select, one for each leading dimension, lazily. If
// the selected elements are adjacent, the part has a View. Copies read only these elements, and
// gaps that are cheaper to read than to skip. In dtypes below a byte, and in tensors converted
// from one, each run of adjacent elements must fill whole bytes of the data.
func (t Tensor) Slice(ranges ...Range) (Tensor, error) {
	p, err := t.slice(ranges)
	if err != nil {
		return Tensor{}, prefixed(fmt.Errorf("slicing %v: %w", t, err))
	}
	return p, nil
}

func (t Tensor) slice(ranges []Range) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, err
	}
	if len(ranges) > len(t.shape) {
		return Tensor{}, fmt.Errorf("%s for rank %d", shapetext.Count(len(ranges), "range"), len(t.shape))
	}
	selected := make([]selection, len(t.shape))
	for i, size := range t.shape {
		r := All()
		if i < len(ranges) {
			r = ranges[i]
		}
		var broken string
		if selected[i], broken = r.resolve(size); broken != "" {
			return Tensor{}, fmt.Errorf("dimension %d: %s", i, broken)
		}
	}
	return t.sliced(selected)
}

// sliced returns the part of t that is selected. There is a selection for each dimension.
func (t Tensor) sliced(selected []selection) (Tensor, error) {
	if c, ok := t.origin.(*concat); ok {
		return c.slice(selected)
	}
	first, whole := int64(0), t.layout()
	shape, strides := make([]int, 0, len(selected)), make([]int64, 0, len(selected))
	for i, s := range selected {
		if s.n > 0 {
			first += int64(s.first) * whole[i]
		}
		if !s.drop {
			shape = append(shape, s.n)
			strides = append(strides, whole[i]*int64(s.step))
		}
	}
	return t.selecting(first, shape, strides)
}

// A selection is a Range in a dimension with a known size: n indices from first on, step apart.
// If n > 0, 0 ≤ first ≤ first + (n-1)×step < size.
type selection struct {
	first, n, step int
	drop           bool // whether the dimension is dropped
}

// Part returns the i-th of n equal parts of t along dimension dim, 0 ≤ i < n. n must
// divide the dimension.
func (t Tensor) Part(dim, i, n int) (Tensor, error) {
	p, err := t.part(dim, i, n)
	if err != nil {
		return Tensor{}, prefixed(fmt.Errorf("part %d of %d along dimension %d of %v: %w", i, n, dim, t, err))
	}
	return p, nil
}

func (t Tensor) part(dim, i, n int) (Tensor, error) {
	switch {
	case dim < 0 || dim >= len(t.shape):
		return Tensor{}, fmt.Errorf("it has rank %d", len(t.shape))
	case n < 1:
		return Tensor{}, errors.New("there is no such part")
	case i < 0 || i >= n:
		return Tensor{}, fmt.Errorf("parts are numbered from 0 to %d", n-1)
	case t.shape[dim]%n != 0:
		return Tensor{}, fmt.Errorf("%d does not divide the size %d", n, t.shape[dim])
	}
	size := t.shape[dim] / n
	ranges := make([]Range, dim+1) // the zero Range is All()
	ranges[dim] = Span(i*size, (i+1)*size)
	return t.slice(ranges)
}

// around returns a part of t that contains its n bytes from off on, and their offset in that
// part, so that a window of a transposed tensor is read without the rest.
func (t Tensor) around(off, n int64) (part Tensor, at int64) {
	adjacent := t.strides == nil
	switch t.origin.(type) {
	case *concat, *through:
		adjacent = false
	}
	if n == 0 || adjacent {
		return t, off
	}
	at = off
	size := t.Size() // size of one index of the dimension, in bytes
	ranges := make([]Range, 0, len(t.shape))
	for _, dim := range t.shape {
		if size%int64(dim) != 0 { // the elements at one index do not fill whole bytes, because an element is smaller than a byte
			break
		}
		size /= int64(dim)
		first, last := at/size, (at+n-1)/size
		at -= first * size
		if first < last {
			ranges = append(ranges, Span(int(first), int(last)+1))
			break
		}
		ranges = append(ranges, At(int(first)))
	}
	part, err := t.slice(ranges)
	if err != nil { // the part would start within a byte: converted elements may be stored in less than one
		return t, off
	}
	return part, at
}

// slice slices each piece that the selection reaches, and joins the results. There is a selection
// for each dimension.
func (c *concat) slice(selected []selection) (Tensor, error) {
	along := selected[c.dim]
	dim := c.dim
	for _, s := range selected[:c.dim] {
		if s.drop {
			dim--
		}
	}
	slicePiece := func(i int, along selection) (Tensor, error) {
		s := slices.Clone(selected)
		s[c.dim] = along
		return c.pieces[i].sliced(s)
	}
	if along.n == 0 { // nothing is selected: any piece gives the shape and the dtype
		return slicePiece(0, selection{n: 0, step: along.step})
	}
	end := along.first + (along.n-1)*along.step + 1
	var parts []Tensor
	for i := sort.SearchInts(c.ends, along.first+1); i < len(c.pieces) && c.begin(i) < end; i++ {
		// The k-th selected index is in this piece for first ≤ k < last.
		first := max(0, stepsWithin(c.begin(i)-along.first, along.step))
		last := min(along.n, stepsWithin(c.ends[i]-along.first, along.step))
		if first >= last {
			continue
		}
		part, err := slicePiece(i, selection{along.first + first*along.step - c.begin(i), last - first, along.step, along.drop})
		if err != nil || along.drop {
			return part, err
		}
		parts = append(parts, part)
	}
	return concatenate(dim, parts)
}
