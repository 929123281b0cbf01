package safetensors

import (
	"runtime"
	"testing"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/stretchr/testify/require"
)

// TestShare: what is gathered from memory is divided among the processors also where
// it is less than a block.
func TestShare(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	data := make([]byte, 7<<20)
	memory := must(NewTensor(U8, []int{3584, 2048}, data))
	reader := must(NewTensorAt(U8, []int{3584, 2048}, zeros{}))
	columns := func(x Tensor) Tensor {
		return must(x.Slice(All(), Span(0, 2047)))
	}
	transposed := must(memory.Transpose())
	require.EqualValues(t, mem.BlockSize, newStoredStream(memory).share())
	require.EqualValues(t, mem.BlockSize, newStoredStream(columns(reader)).share())
	share := newStoredStream(columns(memory)).share()
	require.Greater(t, share, int64(mem.BufferSize/4))
	require.LessOrEqual(t, share, columns(memory).Size()/8)
	share = newStoredStream(transposed).share()
	require.Zero(t, share%(256*3584), "whole columns, and cache lines of rows")
}

// TestFreeSmallResults: memory that is somewhat too large is used again, and of what is too
// small for a result as much goes as makes room.
func TestFreeSmallResults(t *testing.T) {
	r := new(resultPool)
	large := must(r.take(1<<20, nil))
	r.put(large)
	require.Same(t, &large[0], &must(r.take(8, nil))[0])
	r = new(resultPool)
	first, second := must(r.take(8, nil)), must(r.take(8, nil))
	r.put(first)
	r.put(second)
	r.bytes = aheadBytes - 24 // as if others held it
	must(r.take(16, nil))
	require.Len(t, r.free, 1)
	require.Same(t, &second[0], &r.free[0][0], "the older one goes")
	must(r.take(16, nil))
	require.Empty(t, r.free)
}
