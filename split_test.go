package safetensors

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSplitCountsHeaders: the header of each shard fits the limit, and no tensor is lost. Tensors
// whose header fits exactly stay one shard. A tensor with a name that is too long for any header is
// a shard of its own.
func TestSplitCountsHeaders(t *testing.T) {
	tensors := map[string]Tensor{}
	for i := range 400 {
		x, err := NewTensor(F32, []int{1, i % 3}, make([]float32, i%3))
		require.NoError(t, err)
		tensors[fmt.Sprintf("layer\n%d.\"weight\"", i)] = x
	}
	length := func(tensors map[string]Tensor) int64 {
		o := new(outFile)
		require.NoError(t, o.layOut(tensors, nil, 0))
		return int64(len(o.header) - prefixSize)
	}
	whole := length(tensors)
	require.Len(t, split(tensors, 0, whole), 1)
	for _, limit := range []int64{whole - 1, whole / 2, whole / 10, 1000, 300} {
		count := 0
		shards := split(tensors, 0, limit)
		require.Greater(t, len(shards), 1)
		require.Less(t, int64(len(shards)), 4*whole/limit, "a shard takes what fits")
		for _, shard := range shards {
			require.LessOrEqual(t, length(shard), limit)
			count += len(shard)
		}
		require.Equal(t, len(tensors), count)
	}
	require.Len(t, split(tensors, 0, 10), len(tensors))
	require.Len(t, Split(tensors, 0), 1)
}
