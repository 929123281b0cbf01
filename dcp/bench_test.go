package dcp_test

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
	"github.com/stretchr/testify/require"
)

// BenchmarkSlice reads columns of a tensor of which four ranks have 512 each. All 2048
// take as long as one tensor of 16 MiB in a file. They pass through a buffer in the
// cache, which adds little: smaller ones, and copies straight from the mapping, gained
// nothing.
func BenchmarkSlice(b *testing.B) {
	const ranks, size = 4, 2048
	x := random(rand.New(rand.NewPCG(6, 3)), safetensors.F32, size, size)
	dir := b.TempDir()
	for rank := range ranks {
		require.NoError(b, dcp.WriteFile(filepath.Join(dir, dcp.FileName(rank)), pieces{"x": must(must(dcp.NewPiece(x)).Shard(1, rank, ranks))}, nil))
	}
	f := must(dcp.Open(dir))
	defer f.Close()
	x = must(f.Tensor("x"))
	for _, columns := range []int{1, 64, size / ranks, size} {
		b.Run(fmt.Sprint(columns), func(b *testing.B) {
			slice := must(x.Slice(safetensors.All(), safetensors.Span(0, columns)))
			b.SetBytes(slice.Size())
			var buf []float32
			for b.Loop() {
				buf = must(safetensors.Append(buf[:0], slice))
			}
		})
	}
}
