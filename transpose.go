package safetensors

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// Transpose returns t with its dimensions in another order, lazily: dimension i of the result is
// dimension dims[i] of t. Without dims it reverses them. If t is in a mapped file or behind a
// reader, reading the result reads each byte once, and holds up to 1 GiB in memory, or one matrix
// if the leading dimensions stay in front. ReadAt in small windows is slow.
//
// In dtypes below a byte, and in tensors converted from one, the last dimension must stay last, and
// its rows must fill whole bytes; otherwise the error wraps [errors.ErrUnsupported].
func (t Tensor) Transpose(dims ...int) (Tensor, error) {
	p, err := t.transpose(dims)
	if err != nil {
		return Tensor{}, prefixed(fmt.Errorf("transposing %v: %w", t, err))
	}
	return p, nil
}

func (t Tensor) transpose(dims []int) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, err
	}
	rank := len(t.shape)
	all := make([]int, rank)
	for i := range all {
		all[i] = i
	}
	if len(dims) == 0 {
		dims = slices.Clone(all)
		slices.Reverse(dims)
	}
	sorted := slices.Clone(dims) // slices.Sorted takes several times the memory
	slices.Sort(sorted)
	if !slices.Equal(sorted, all) {
		return Tensor{}, fmt.Errorf("%s is not a permutation of its %d dimensions", shapetext.Of(dims), rank)
	}
	if c, ok := t.origin.(*concat); ok {
		return c.each(slices.Index(dims, c.dim), func(p Tensor) (Tensor, error) { return p.transpose(dims) })
	}
	shape, strides, whole := make([]int, rank), make([]int64, rank), t.layout()
	for i, dim := range dims {
		shape[i], strides[i] = t.shape[dim], whole[dim]
	}
	p, err := t.selecting(0, shape, strides)
	if err != nil {
		return Tensor{}, fmt.Errorf("%w: %w", err, errors.ErrUnsupported)
	}
	return p, nil
}
