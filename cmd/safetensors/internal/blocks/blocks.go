// Package blocks makes large tensors of small ones, so that computing them takes little
// memory.
package blocks

import (
	"slices"

	"github.com/gosafetensors/safetensors"
)

// Elements is how many elements are computed at once: 8 MiB of float32.
const Elements = 2 << 20

// Most is how many bytes may be joined: blocks of more would take 1 to 2 GB of memory before any is
// computed.
const Most = 8e12

// Join returns a tensor of a shape, joined from blocks of at most Elements elements.
// makeBlock makes one of them, from its ranges in the leading dimensions and its shape.
func Join(shape []int, makeBlock func(block []safetensors.Range, shape []int) (safetensors.Tensor, error)) (safetensors.Tensor, error) {
	return joinFrom(0, nil, shape, makeBlock)
}

// joinFrom splits a block in dimension dim, and in those after it where an index of
// dim has too many elements.
func joinFrom(dim int, block []safetensors.Range, shape []int, makeBlock func([]safetensors.Range, []int) (safetensors.Tensor, error)) (safetensors.Tensor, error) {
	if dim == len(shape) || slices.Contains(shape, 0) {
		return makeBlock(block, shape)
	}
	row := int64(1) // elements of an index of dim
	for _, n := range shape[dim+1:] {
		row *= int64(n)
	}
	rows := int(max(1, Elements/row))
	if shape[dim] <= rows && row <= Elements {
		return makeBlock(block, shape)
	}
	var pieces []safetensors.Tensor
	for first := 0; first < shape[dim]; first += rows {
		end := min(first+rows, shape[dim])
		part := slices.Clone(shape)
		part[dim] = end - first
		piece, err := joinFrom(dim+1, append(slices.Clip(block), safetensors.Span(first, end)), part, makeBlock)
		if err != nil {
			return piece, err
		}
		pieces = append(pieces, piece)
	}
	return safetensors.Concat(dim, pieces...)
}
