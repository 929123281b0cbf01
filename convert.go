package safetensors

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors/internal/float"
)

// Convert returns t converted to dtype d, lazily. Rounding is to nearest, ties to even. Values
// beyond the range become infinities; in F8_E4M3, which has none, ±448; in the FNUZ dtypes NaN, as
// in PyTorch. From any float, d can be F64, F32, F16, BF16 or an F8 dtype except F8_E8M0; for any
// other d or t, the error wraps [errors.ErrUnsupported].
func (t Tensor) Convert(d DType) (Tensor, error) {
	err := t.check()
	if err == nil && !float.Convertible(t.dtype.float(), d.float()) {
		err = fmt.Errorf("converting %v to %v: %s: %w", t, d, convertsTo(t.dtype), errors.ErrUnsupported)
	}
	if err == nil {
		t, err = t.convert(d)
	}
	if err != nil {
		return Tensor{}, prefixed(err)
	}
	return t, nil
}

// convertsTo returns a text for errors: the dtypes to which Convert converts a tensor of dtype d.
func convertsTo(d DType) string {
	var targets []string
	for to := range DTypes() {
		if to != d && float.Convertible(d.float(), to.float()) {
			targets = append(targets, to.String())
		}
	}
	if len(targets) == 0 {
		return "only floats are converted"
	}
	return fmt.Sprintf("%v can be converted only to %s", d, oneOf(targets))
}

// convert is Convert without its check of the dtypes, because Append also converts integers.
func (t Tensor) convert(d DType) (Tensor, error) {
	if d == t.dtype {
		return t, nil
	}
	if c, ok := t.origin.(*concat); ok {
		return c.each(c.dim, func(p Tensor) (Tensor, error) { return p.convert(d) })
	}
	if _, broken := checkShape(d, t.shape); broken != "" {
		return Tensor{}, fmt.Errorf("converting %v to %v: %s", t, d, broken)
	}
	if t.dtypes == nil {
		t.dtypes = []DType{t.dtype}
	}
	t.dtypes = append(slices.Clip(t.dtypes), d)
	t.dtype = d
	return t, nil
}

// Bitcast returns the bytes of t as elements of dtype d. If the element sizes differ, the size of
// the last dimension changes: U8 [2,8] becomes F4 [2,16] or F32 [2,2]. The bytes of that
// dimension must be adjacent, and fill whole elements of d. For a converted t, the error wraps
// [errors.ErrUnsupported].
func (t Tensor) Bitcast(d DType) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, prefixed(err)
	}
	p, err := t.bitcast(d)
	if err != nil {
		return Tensor{}, prefixed(fmt.Errorf("casting %v to %v: %w", t, d, err))
	}
	return p, nil
}

func (t Tensor) bitcast(d DType) (Tensor, error) {
	joined, _ := t.origin.(*concat)
	switch {
	case !d.valid():
		return Tensor{}, errors.New("invalid dtype")
	case joined != nil:
		return joined.each(joined.dim, func(p Tensor) (Tensor, error) { return p.bitcast(d) })
	case t.dtypes != nil:
		return Tensor{}, fmt.Errorf("its elements are converted as they are read: %w", errors.ErrUnsupported)
	case d.Bits() == t.dtype.Bits():
		t.dtype = d
		return t, nil
	case len(t.shape) == 0:
		return Tensor{}, errors.New("a scalar has no dimension to scale")
	}
	shape, strides, broken := t.scale(d)
	if broken == "" {
		_, broken = checkShape(d, shape)
	}
	if broken != "" {
		return Tensor{}, errors.New(broken)
	}
	t.dtype = d
	return t.selecting(0, shape, strides)
}

// scale returns the shape and the strides that the bytes of t have as elements of another dtype, or
// the rule that they break. The rank of t must be at least 1.
func (t Tensor) scale(to DType) (shape []int, strides []int64, broken string) {
	// Every per elements of t are times elements of the other dtype. The loop reduces times/per to
	// lowest terms, so that products stay small.
	times, per := t.dtype.Bits(), to.Bits()
	for d := times; d > 1; d-- {
		if times%d == 0 && per%d == 0 {
			times, per = times/d, per/d
		}
	}
	last := len(t.shape) - 1
	shape, strides = slices.Clone(t.shape), slices.Clone(t.layout())
	size := shape[last]
	switch {
	case size%per != 0:
		return nil, nil, fmt.Sprintf("%d elements of the last dimension do not fill whole elements of %v", size, to)
	case size/per > math.MaxInt/times:
		return nil, nil, "the last dimension overflows"
	case size > 1 && strides[last] != 1:
		return nil, nil, "the elements of the last dimension are not adjacent"
	}
	shape[last] = size / per * times
	strides[last] = 1
	for i, stride := range strides[:last] {
		if shape[i] > 1 && stride%int64(per) != 0 {
			return nil, nil, fmt.Sprintf("steps of %d elements in dimension %d do not start elements of %v", stride, i, to)
		}
		strides[i] = stride / int64(per) * int64(times) // may overflow in a tensor without elements, where it does not matter
	}
	return shape, strides, ""
}
