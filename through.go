package safetensors

import (
	"fmt"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/stride"
)

// Reshape returns t with a new shape, lazily. The number of elements and their row-major order
// stay the same. One dimension of shape may be -1, as in NumPy: its size follows from the others.
// If the elements of t are not contiguous, reading gathers them, and there is no View.
func (t Tensor) Reshape(shape ...int) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, prefixed(err)
	}
	shape, broken := t.completeShape(shape)
	if broken != "" {
		return Tensor{}, prefixed(fmt.Errorf("reshaping %v to %s: %s", t, shapetext.Of(shape), broken))
	}
	if t.strides != nil {
		if strides, ok := t.split(shape); ok {
			if p, err := t.selecting(0, shape, strides); err == nil {
				return p, nil
			}
		}
	}
	if _, joined := t.origin.(*concat); joined || t.strides != nil {
		t = Tensor{dtype: t.dtype, origin: &through{t}, size: t.Size()}
	}
	t.shape = shape
	return t, nil
}

// completeShape returns a copy of a shape for the elements of t, in which a dimension of -1 is
// replaced by its size. broken is the reason why t cannot have that shape, "" if it can.
func (t Tensor) completeShape(shape []int) (complete []int, broken string) {
	complete = slices.Clone(shape)
	have, _ := countElements(t.shape)
	if i := slices.Index(shape, -1); i >= 0 {
		complete[i] = 1
		rest, ok := countElements(complete)
		switch {
		case slices.Contains(complete, -1):
			return shape, "only one dimension can be -1"
		case !ok: // checkShape returns the reason
		case rest == 0:
			return shape, "a dimension of size 0 leaves the size of -1 open"
		case have%rest != 0:
			return shape, fmt.Sprintf("its number of elements, %d, is not a multiple of %d", have, rest)
		case have/rest > math.MaxInt: // possible on a 32-bit system
			return shape, fmt.Sprintf("the size %d for -1 exceeds an int", have/rest)
		default:
			complete[i] = int(have / rest)
		}
	}
	if _, broken := checkShape(t.dtype, complete); broken != "" {
		return shape, broken
	}
	if want, _ := countElements(complete); want != have {
		return shape, fmt.Sprintf("it has %s, the new shape %d", shapetext.Count(have, "element"), want)
	}
	return complete, ""
}

// split returns the strides of the same elements in another shape. ok is false if there are none:
// each new dimension must be a part of one loop, after the loops of the old dimensions are
// merged.
func (t Tensor) split(shape []int) (strides []int64, ok bool) {
	var merged gather // the loops of t, with strides that count elements instead of bytes
	for i, n := range t.shape {
		merged.add(stride.Loop{N: int64(n), Stride: t.strides[i]})
	}
	strides = make([]int64, len(shape))
	for i, n := range slices.Backward(shape) {
		if n == 1 {
			continue // the stride of a dimension of size 1 does not matter
		}
		k := len(merged.loops) - 1
		rest := &merged.loops[k]
		if rest.N%int64(n) != 0 {
			return nil, false
		}
		strides[i] = rest.Stride
		rest.N /= int64(n)
		rest.Stride *= int64(n)
		if rest.N == 1 {
			merged.loops = merged.loops[:k]
		}
	}
	return strides, true
}

// A through is the origin of a reshaped tensor whose shape no strides can express. Its bytes are
// the elements of the embedded Tensor, in row-major order.
type through struct{ Tensor }

func (*through) notInMemory() string { return "its elements were not contiguous before Reshape" }
