package safetensors

import "fmt"

// A Range selects indices of one dimension: All, Span, At, each with By. The
// zero Range is All().
type Range struct {
	kind        rangeKind
	start, stop int
	step        int // 0 is 1; a negative one is an error when the Range is used
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
// [start:stop] does. Negative ones count from the end of the dimension: -1 is
// its last index. Unlike in Python, an index beyond the dimension is an error.
func Span(start, stop int) Range { return Range{kind: rangeSpan, start: start, stop: stop} }

// At selects one index and drops the dimension, as [i] does. A negative one
// counts from the end.
func At(i int) Range { return Range{kind: rangeAt, start: i} }

// By selects every step-th of the indices of r, beginning with the first, as
// [start:stop:step] does in Python. A step below 1 is an error of Slice.
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

// resolve returns the first index, the number of indices and their distance in
// a dimension of that size, 0 ≤ first ≤ first + (n-1)×step < size if n > 0.
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
			return 0, 0, 0, fmt.Sprintf("range [%v] ends before it begins, for size %d", r, size)
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
// dimension; dimensions without a range stay whole. It copies nothing: the
// result refers to the same data, and is still contiguous, so that View takes
// it, if the elements it selects follow one another in the file. Otherwise
// Append and WriteTo gather them, and read no others where the file is not in
// memory, gaps aside that are cheaper to read than to skip.
//
// A dtype of less than a byte can be sliced where each run of elements that
// follow one another begins and ends on a byte boundary.
//
// The error names the dimension, the range and the size of what is wrong.
func (t Tensor) Slice(ranges ...Range) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, err
	}
	l := t.strided
	if l == nil {
		l = &strided{strides: rowMajor(t.Shape), bits: t.stored().Bits()}
	}
	if len(ranges) > len(t.Shape) {
		return Tensor{}, fmt.Errorf("safetensors: %d ranges for %v %s of rank %d", len(ranges), t.DType, formatShape(t.Shape), len(t.Shape))
	}
	part := &strided{shape: []int{}, first: l.first, bits: l.bits}
	for i, size := range t.Shape {
		r := All()
		if i < len(ranges) {
			r = ranges[i]
		}
		first, n, step, broken := r.resolve(size)
		if broken != "" {
			return Tensor{}, fmt.Errorf("safetensors: slicing %v %s: dimension %d: %s", t.DType, formatShape(t.Shape), i, broken)
		}
		if n > 0 {
			part.first += int64(first) * l.strides[i]
		}
		if r.kind != rangeAt {
			part.shape = append(part.shape, n)
			part.strides = append(part.strides, l.strides[i]*int64(step))
		}
	}
	return t.part(part)
}

// part returns the elements of t that l selects.
func (t Tensor) part(l *strided) (Tensor, error) {
	p := t
	p.Shape, p.strided, p.size = l.shape, nil, 0
	if n, _ := countElements(l.shape); n == 0 {
		return p, nil
	}
	g, broken := newGather(t.stored(), l)
	if broken != "" {
		return Tensor{}, fmt.Errorf("safetensors: slicing %v %s to %s: %s", t.DType, formatShape(t.Shape), formatShape(l.shape), broken)
	}
	p.size = g.size()
	if g.contiguous() {
		p.off += g.first
	} else {
		p.strided = l
	}
	return p, nil
}

// A strided selects elements of a contiguous tensor: its element (i, j, …) is number first + i×strides[0] + j×….
type strided struct {
	shape   []int
	first   int64
	strides []int64 // one for each dimension
	bits    int     // of an element
}

// rowMajor returns the strides of a shape whose elements follow one another.
func rowMajor(shape []int) []int64 {
	strides := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= int64(shape[i]) // overflows only beside a zero dimension, where no stride matters
	}
	return strides
}
