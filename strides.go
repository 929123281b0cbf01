package safetensors

import (
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/stride"
)

// gather merges the dimensions of t, which has elements and strides, into as few loops and as
// long runs as possible. It is an error if a run does not fill whole bytes.
func (t Tensor) gather() (g gather, err error) {
	bits := int64(t.sourceDType().Bits())
	run, outer := int64(1), len(t.shape) // elements of a run; number of dimensions outside of it
	for outer > 0 && (t.shape[outer-1] == 1 || t.strides[outer-1] == run) {
		outer--
		run *= int64(t.shape[outer])
	}
	var ok bool
	if g.run, ok = scaled(run, bits, 8); !ok {
		return g, fmt.Errorf("runs of %s of %d bits do not end on a byte boundary", shapetext.Count(run, "element"), bits)
	}
	for i, step := range t.strides[:outer] {
		n := int64(t.shape[i])
		size, ok := scaled(step, bits, 8)
		if !ok && n > 1 {
			return g, fmt.Errorf("every %d-th element of %d bits does not start on a byte boundary", step, bits)
		}
		g.add(stride.Loop{N: n, Stride: size})
	}
	return g, nil
}

// layout returns the strides of t, in stored elements.
func (t Tensor) layout() []int64 {
	if t.strides != nil {
		return t.strides
	}
	strides, n := make([]int64, len(t.shape)), int64(1)
	for i, size := range slices.Backward(t.shape) {
		strides[i] = n
		n *= int64(size) // overflows only if a dimension is zero, and then no stride matters
	}
	return strides
}

// selecting returns the tensor with this shape and these strides that starts at element first of
// t. Strides count stored elements.
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
