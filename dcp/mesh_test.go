package dcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlaceless: a rank without a coordinate must not be one of its mesh.
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

// TestNoLayout: what is not the object of a layout is refused.
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
