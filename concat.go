package safetensors

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Concat returns tensors joined along dimension dim, which counts from 0, lazily. There must be at
// least one tensor. They must agree in dtype, rank, and every other dimension. In dtypes below a
// byte, the part of each tensor at one index of the dimensions before dim must fill whole bytes.
// Tensors that are adjacent parts of one tensor are merged into a single part of it; if several
// parts remain, the result has no View.
func Concat(dim int, tensors ...Tensor) (Tensor, error) {
	t, err := concatenate(dim, tensors)
	if err != nil {
		return Tensor{}, prefixed(fmt.Errorf("concatenating along dimension %d: %w", dim, err))
	}
	return t, nil
}

// A concat is the origin of a joined tensor, which has no offset, size, strides and dtypes of its
// own: its pieces have them. Every operation on a joined tensor makes a new concat, so that two
// tensors with the same concat are the same tensor.
type concat struct {
	dim    int
	pieces []Tensor // at least two; each has elements, and none is a concat along dim
	ends   []int    // the index along dim at which each piece ends, increasing
}

func concatenate(dim int, tensors []Tensor) (Tensor, error) {
	shape, err := concatShape(dim, tensors)
	if err != nil {
		return Tensor{}, err
	}
	var pieces []Tensor
	for _, t := range tensors {
		if t.Len() == 0 {
			continue
		}
		inner := []Tensor{t}
		if c, ok := t.origin.(*concat); ok && c.dim == dim {
			inner = c.pieces
		}
		for _, p := range inner {
			if n := len(pieces); n > 0 {
				if joined, ok := pieces[n-1].adjoin(dim, p); ok {
					pieces[n-1] = joined
					continue
				}
			}
			pieces = append(pieces, p)
		}
	}
	switch len(pieces) {
	case 0: // no tensor has elements; shape has the sum of their lengths along dim
		t := tensors[0]
		return Tensor{dtype: t.dtype, shape: shape, origin: &source{mem: []byte{}}}, nil
	case 1:
		return pieces[0], nil
	}
	c := &concat{dim, pieces, make([]int, len(pieces))}
	t := Tensor{dtype: tensors[0].dtype, shape: shape, origin: c}
	for i, p := range pieces {
		c.ends[i] = c.begin(i) + p.shape[dim]
		if bits, outer := int64(p.dtype.Bits()), outerSize(dim, shape); p.Size()%outer != 0 {
			return Tensor{}, fmt.Errorf("rows of piece %d, %v, have %d elements of %d bits, which do not fill whole bytes", i, p, int64(p.Len())/outer, bits)
		}
	}
	return t, nil
}

// concatShape returns the shape that the tensors have when they are joined along dim.
func concatShape(dim int, tensors []Tensor) ([]int, error) {
	if len(tensors) == 0 {
		return nil, errors.New("there are no tensors")
	}
	first := tensors[0]
	if err := first.check(); err != nil {
		return nil, err
	}
	if dim < 0 || dim >= len(first.shape) {
		return nil, fmt.Errorf("%v has rank %d", first, len(first.shape))
	}
	shape := slices.Clone(first.shape)
	for i, t := range tensors[1:] {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("tensor %d: %w", i+1, err)
		}
		if t.dtype != first.dtype || len(t.shape) != len(shape) ||
			!slices.Equal(t.shape[:dim], shape[:dim]) || !slices.Equal(t.shape[dim+1:], shape[dim+1:]) {
			return nil, fmt.Errorf("tensor %d is %v, tensor 0 is %v: only that dimension may differ", i+1, t, first)
		}
		if t.shape[dim] > math.MaxInt-shape[dim] {
			return nil, errors.New("the dimension overflows")
		}
		shape[dim] += t.shape[dim]
	}
	if _, broken := checkShape(first.dtype, shape); broken != "" {
		return nil, errors.New(broken)
	}
	return shape, nil
}

// outerSize returns the product of the dimensions before dim: the number of rows of a tensor that
// is joined along dim. Each row consists of a part of each piece.
func outerSize(dim int, shape []int) int64 {
	n, _ := countElements(shape[:dim])
	return int64(n)
}

// adjoin returns t and next as one tensor of their origin, if next continues t along dim. Both
// have elements and agree in all other dimensions.
func (t Tensor) adjoin(dim int, next Tensor) (Tensor, bool) {
	if t.origin != next.origin || t.watch != next.watch || !slices.Equal(t.dtypes, next.dtypes) {
		return Tensor{}, false
	}
	distance, ok := scaled(next.off-t.off, 8, int64(t.sourceDType().Bits())) // distance of their first elements, in elements
	if !ok || distance <= 0 {
		return Tensor{}, false
	}
	strides, after := slices.Clone(t.layout()), next.layout()
	for i, size := range t.shape {
		switch {
		case i == dim:
			if size == 1 { // any stride fits a dimension of size 1
				strides[i] = distance
			}
			if distance != int64(size)*strides[i] || next.shape[i] > 1 && after[i] != strides[i] {
				return Tensor{}, false
			}
		case size > 1 && strides[i] != after[i]:
			return Tensor{}, false
		}
	}
	shape := slices.Clone(t.shape)
	shape[dim] += next.shape[dim]
	p, err := t.selecting(0, shape, strides)
	return p, err == nil
}

func (c *concat) notInMemory() string { return "it is joined from several tensors" }

// begin returns the index along dim at which piece i starts.
func (c *concat) begin(i int) int {
	if i == 0 {
		return 0
	}
	return c.ends[i-1]
}

// each applies f to the pieces and joins the results along dim.
func (c *concat) each(dim int, f func(Tensor) (Tensor, error)) (Tensor, error) {
	pieces := make([]Tensor, len(c.pieces))
	for i, p := range c.pieces {
		var err error
		if pieces[i], err = f(p); err != nil {
			return Tensor{}, err
		}
	}
	return concatenate(dim, pieces)
}
