package safetensors

import "fmt"

// A Range selects indices of one dimension: All, Span, At, each with By. The
// zero Range is All().
type Range struct {
	kind        rangeKind
	start, stop int
	step        int // 0 means 1; -1 is an error when the Range is used
}

type rangeKind uint8

const (
	rangeAll rangeKind = iota
	rangeSpan
	rangeAt
)

// All selects a whole dimension, as [:] does in Go and Python.
func All() Range { return Range{} }

// Span selects the indices from start up to, not including, stop, as
// [start:stop] does. Negative indices count from the end of the dimension: -1 is
// its last index. Unlike in Python, an index beyond the dimension is an error.
func Span(start, stop int) Range { return Range{kind: rangeSpan, start: start, stop: stop} }

// At selects one index and drops the dimension, as [i] does. A negative index
// counts from the end.
func At(i int) Range { return Range{kind: rangeAt, start: i} }

// By selects every step-th of the indices of r, starting with the first, as
// [start:stop:step] does in Python. Slice refuses a step below 1.
func (r Range) By(step int) Range {
	if step < 1 {
		step = -1
	}
	r.step = step
	return r
}

// String returns the range as it is written between the brackets of Python.
func (r Range) String() string {
	s := ":"
	switch r.kind {
	case rangeSpan:
		s = fmt.Sprintf("%d:%d", r.start, r.stop)
	case rangeAt:
		s = fmt.Sprint(r.start)
	}
	if r.step > 1 {
		s += fmt.Sprintf(":%d", r.step)
	}
	return s
}

// resolve returns the first index, the number of indices and their distance in a
// dimension of that size. If n > 0, 0 ≤ first ≤ first + (n-1)×step < size.
func (r Range) resolve(size int) (first, n, step int, broken string) {
	first, stop := 0, size
	if r.kind != rangeAll {
		if first = r.start; first < 0 {
			first += size
		}
	}
	switch r.kind {
	case rangeAt:
		if first < 0 || first >= size {
			return 0, 0, 0, fmt.Sprintf("index %d is out of range for size %d", r.start, size)
		}
		stop = first + 1
	case rangeSpan:
		if stop = r.stop; stop < 0 {
			stop += size
		}
		if first < 0 || first > size || stop < 0 || stop > size {
			return 0, 0, 0, fmt.Sprintf("range [%v] is out of range for size %d", r, size)
		}
		if first > stop {
			return 0, 0, 0, fmt.Sprintf("range [%v] ends before it starts, for size %d", r, size)
		}
	}
	step = max(r.step, 1)
	if r.step < 0 {
		return 0, 0, 0, fmt.Sprintf("the step of range [%v] is below 1", r)
	}
	n = stop - first
	return first, n/step + min(n%step, 1), step, ""
}

// Slice returns the part of t that the ranges select, one for each leading
// dimension; dimensions without a range stay whole. It copies nothing: the result
// refers to the same data. If the selected elements are adjacent in the file, the
// result is contiguous and can be viewed. Otherwise Append and WriteTo gather the
// elements. Where the file is not in memory, they read only the selected
// elements, and gaps that are cheaper to read than to skip.
//
// A dtype of less than a byte can be sliced where each run of adjacent elements
// starts and ends on a byte boundary.
//
// The error names the dimension, the range and the size at fault.
func (t Tensor) Slice(ranges ...Range) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, prefixed(err)
	}
	if len(ranges) > len(t.shape) {
		return Tensor{}, prefixed(fmt.Errorf("slicing %v: %d ranges for rank %d", t, len(ranges), len(t.shape)))
	}
	whole := t.layout()
	part := &strided{shape: []int{}, first: whole.first}
	for i, size := range t.shape {
		r := All()
		if i < len(ranges) {
			r = ranges[i]
		}
		first, n, step, broken := r.resolve(size)
		if broken != "" {
			return Tensor{}, prefixed(fmt.Errorf("slicing %v: dimension %d: %s", t, i, broken))
		}
		if n > 0 {
			part.first += int64(first) * whole.strides[i]
		}
		if r.kind != rangeAt {
			part.shape = append(part.shape, n)
			part.strides = append(part.strides, whole.strides[i]*int64(step))
		}
	}
	p, broken := t.selecting(part)
	if broken != "" {
		return Tensor{}, prefixed(fmt.Errorf("slicing %v to %s: %s", t, formatShape(part.shape), broken))
	}
	return p, nil
}

// layout returns which elements of the data t has, in which order.
func (t Tensor) layout() *strided {
	if t.strided != nil {
		return t.strided
	}
	return &strided{shape: t.shape, strides: rowMajor(t.shape)}
}

// selecting returns the tensor of the elements that l selects, counted from the
// same element as in the layout of t.
func (t Tensor) selecting(l *strided) (p Tensor, broken string) {
	p = t
	p.shape, p.strided, p.size = l.shape, nil, 0
	if n, _ := countElements(l.shape); n == 0 {
		return p, ""
	}
	g, broken := newGather(t.stored(), l)
	if broken != "" {
		return Tensor{}, broken
	}
	p.size = g.size()
	if g.contiguous() {
		p.off += g.first
	} else {
		p.strided = l
	}
	return p, ""
}
