// Package blocks joins large tensors from small ones, so that computing a large tensor takes little
// memory.
package blocks

import (
	"slices"

	"github.com/gosafetensors/safetensors"
)

// Elements is the largest number of elements that are computed at a time: 8 MiB of float32.
const Elements = 2 << 20

// Most is the largest size in bytes of a joined tensor. The list of blocks of a larger tensor would
// take 1 to 2 GB of memory before any block is computed.
const Most = 8e12

// Join returns a tensor with this shape, joined from blocks of at most Elements elements. makeBlock
// makes one block. Its arguments are the ranges of the block's indices in the leading dimensions,
// and the block's shape.
func Join(shape []int, makeBlock func(block []safetensors.Range, shape []int) (safetensors.Tensor, error)) (safetensors.Tensor, error) {
	return JoinOf(Elements, shape, makeBlock)
}

// JoinOf is like Join, but uses most instead of Elements.
func JoinOf(most int64, shape []int, makeBlock func(block []safetensors.Range, shape []int) (safetensors.Tensor, error)) (safetensors.Tensor, error) {
	return joinFrom(most, 0, nil, shape, makeBlock)
}

// joinFrom splits a block that exceeds the limit along the dimension dim. If a single index of this
// dimension already has too many elements, it also splits the later dimensions.
func joinFrom(most int64, dim int, block []safetensors.Range, shape []int, makeBlock func([]safetensors.Range, []int) (safetensors.Tensor, error)) (safetensors.Tensor, error) {
	if dim == len(shape) || slices.Contains(shape, 0) {
		return makeBlock(block, shape)
	}
	row := int64(1) // number of elements for each index of dim
	for _, n := range shape[dim+1:] {
		row *= int64(n)
	}
	rows := int(max(1, most/row))
	if shape[dim] <= rows && row <= most {
		return makeBlock(block, shape)
	}
	var pieces []safetensors.Tensor
	for first := 0; first < shape[dim]; first += rows {
		end := min(first+rows, shape[dim])
		part := slices.Clone(shape)
		part[dim] = end - first
		piece, err := joinFrom(most, dim+1, append(slices.Clip(block), safetensors.Span(first, end)), part, makeBlock)
		if err != nil {
			return piece, err
		}
		pieces = append(pieces, piece)
	}
	return safetensors.Concat(dim, pieces...)
}
