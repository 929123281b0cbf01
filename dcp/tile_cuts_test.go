package dcp

import (
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestCuts: a tiling that would cut pieces into too many parts is an error, so that hostile files
// cannot make more pieces than a small multiple of their number.
func TestCuts(t *testing.T) {
	wheel := []box{
		{[]int{0, 0}, []int{1, 2}}, {[]int{0, 2}, []int{2, 3}}, {[]int{2, 1}, []int{3, 3}},
		{[]int{1, 0}, []int{3, 1}}, {[]int{1, 1}, []int{2, 2}},
	}
	var pieces []piece
	for _, b := range wheel {
		rows, columns := b.end[0]-b.begin[0], b.end[1]-b.begin[1]
		x := must(safetensors.NewTensor(safetensors.U8, []int{rows, columns}, make([]byte, rows*columns)))
		pieces = append(pieces, piece{b, b, x, &shard{name: "a file"}})
	}
	all := box{[]int{0, 0}, []int{3, 3}}
	must((&tiling{name: "x", dims: []int{0, 1}, count: 5, parts: 2}).join(all, pieces, 0))
	_, err := (&tiling{name: "x", dims: []int{0, 1}, count: 5, parts: 1}).join(all, pieces, 0)
	require.EqualError(t, err, `tensor "x": its 5 pieces would have to be cut too often to be joined`)
}
