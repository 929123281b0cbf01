package dcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaceless: a rank without a coordinate must not be listed in its mesh.
func TestPlaceless(t *testing.T) {
	m := &mesh{shape: []int{2}, ranks: []int32{4, 6}}
	for rank, refused := range map[int]bool{-1: false, 0: false, 4: true, 5: false, 6: true} {
		err := (&place{mesh: m, rank: rank}).check()
		if refused {
			require.ErrorContains(t, err, "is in its mesh, but has no place there")
		} else {
			require.NoError(t, err, rank)
		}
	}
}

// TestNoLayout: a value that is not a layout object is refused.
func TestNoLayout(t *testing.T) {
	for _, v := range []any{nil, "x", int64(1)} {
		_, _, err := layoutOf(v)
		require.ErrorContains(t, err, "its layout is ")
	}
}

// TestPlacementNames: placements are written as PyTorch writes them.
func TestPlacementNames(t *testing.T) {
	require.Equal(t, "Replicate()", placement{dim: -1}.String())
	require.Equal(t, "Shard(0)", placement{dim: 0}.String())
	require.Equal(t, "_StridedShard(1, 2)", placement{dim: 1, before: 2}.String())
}

// TestAscend: the ranks of a mesh ascend along every dimension, or they do not along one of them.
func TestAscend(t *testing.T) {
	for _, c := range []struct {
		shape []int
		ranks []int32
		want  bool
	}{
		{[]int{1}, []int32{7}, true},
		{[]int{3}, []int32{0, 2, 5}, true},
		{[]int{3}, []int32{0, 5, 2}, false},
		{[]int{2, 3}, []int32{0, 2, 4, 1, 3, 5}, true}, // the next row begins with a smaller rank than the last one ends
		{[]int{2, 3}, []int32{1, 3, 5, 0, 2, 4}, false},
		{[]int{2, 3}, []int32{0, 2, 1, 3, 4, 5}, false},
		{[]int{2, 1, 2}, []int32{0, 1, 2, 3}, true},
		{[]int{2, 2, 1}, []int32{0, 1, 3, 2}, false},
	} {
		require.Equal(t, c.want, ascend(c.ranks, c.shape), "%v of %v", c.ranks, c.shape)
	}
}
