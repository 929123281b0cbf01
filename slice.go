package safetensors

import (
	"errors"
	"fmt"
	"slices"
)

// A Range selects indices of one dimension: All, Span, At, each with By. The zero Range
// is All().
type Range struct {
	bounded     bool // from start up to stop
	drop        bool // only start, without the dimension
	start, stop int
	step        int // 0 means 1; -1 is an error when the Range is used
}

// All selects a whole dimension.
func All() Range { return Range{} }

// Span selects the indices from start up to, not including, stop. Negative indices
// count from the end. Unlike in Python, an index beyond the dimension is an error.
func Span(start, stop int) Range { return Range{bounded: true, start: start, stop: stop} }

// At selects one index and drops the dimension. A negative index counts from the end.
func At(i int) Range { return Range{drop: true, start: i} }

// By selects every step-th index of r, starting with the first. Slice refuses a step
// below 1.
func (r Range) By(step int) Range {
	if step < 1 {
		step = -1
	}
	r.step = step
	return r
}

// String returns the range as Python writes it.
func (r Range) String() string {
	s := ":"
	switch {
	case r.bounded:
		s = fmt.Sprintf("%d:%d", r.start, r.stop)
	case r.drop:
		s = fmt.Sprint(r.start)
	}
	if r.step > 1 {
		s += fmt.Sprintf(":%d", r.step)
	}
	return s
}

// resolve returns what r selects in a dimension of that size.
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
		first, stop = fromStart(r.start), fromStart(r.stop)
		if first < 0 || first > size || stop < 0 || stop > size {
			return s, fmt.Sprintf("range [%v] is out of range for size %d", r, size)
		}
		if first > stop {
			return s, fmt.Sprintf("range [%v] ends before it starts, for size %d", r, size)
		}
	}
	if r.step < 0 {
		return s, fmt.Sprintf("the step of range [%v] is below 1", r)
	}
	n := stop - first
	step := max(1, min(r.step, n)) // a longer one selects the same, and products could overflow
	return selection{first, stepsWithin(n, step), step, r.drop}, ""
}

// stepsWithin returns how many multiples of step, from 0 on, are below n; for a negative
// n, 0 or less.
func stepsWithin(n, step int) int { return n/step + min(n%step, 1) }

// Slice returns the part of t that the ranges select, one for each leading dimension,
// lazily. Adjacent elements have a View. Copies read only the elements, and gaps that are
// cheaper to read than to skip. In dtypes below a
// byte, each run of adjacent elements must be whole bytes.
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
		return Tensor{}, fmt.Errorf("%d ranges for rank %d", len(ranges), len(t.shape))
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

// sliced returns what is selected in each dimension.
func (t Tensor) sliced(selected []selection) (Tensor, error) {
	if t.concat != nil {
		return t.concat.slice(selected)
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

// A selection is a Range in a dimension of known size: n indices from first on,
// step apart. If n > 0, 0 ≤ first ≤ first + (n-1)×step < size.
type selection struct {
	first, n, step int
	drop           bool // the dimension goes
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
	case n < 1 || i < 0 || i >= n:
		return Tensor{}, errors.New("there is no such part")
	case t.shape[dim]%n != 0:
		return Tensor{}, fmt.Errorf("%d does not divide the size %d", n, t.shape[dim])
	}
	size := t.shape[dim] / n
	ranges := make([]Range, dim+1) // the zero Range is All()
	ranges[dim] = Span(i*size, (i+1)*size)
	return t.slice(ranges)
}

// layout returns the strides of t, in stored elements.
func (t Tensor) layout() []int64 {
	if t.strides != nil {
		return t.strides
	}
	strides, n := make([]int64, len(t.shape)), int64(1)
	for i, size := range slices.Backward(t.shape) {
		strides[i] = n
		n *= int64(size) // overflows only next to a zero dimension, where no stride matters
	}
	return strides
}

// selecting returns the tensor of the elements of that shape and those strides, from
// element first of t on.
func (t Tensor) selecting(first int64, shape []int, strides []int64) (Tensor, error) {
	t.shape, t.strides, t.size = shape, nil, 0
	if n, _ := countElements(shape); n == 0 {
		return t, nil
	}
	t.strides = strides
	g, err := t.gather()
	if err != nil {
		return Tensor{}, err
	}
	bits := int64(t.sourceDType().Bits())
	off, ok := scaled(first, bits, 8)
	if !ok {
		return Tensor{}, fmt.Errorf("element %d of %d bits does not start on a byte boundary", first, bits)
	}
	t.off, t.size = t.off+off, g.size()
	if g.contiguous() {
		t.strides = nil
	}
	return t, nil
}
