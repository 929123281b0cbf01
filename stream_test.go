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
	memory, err := NewTensor(U8, []int{3584, 2048}, data)
	require.NoError(t, err)
	reader, err := NewTensorAt(U8, []int{3584, 2048}, zeros{})
	require.NoError(t, err)
	columns := func(x Tensor) Tensor {
		y, err := x.Slice(All(), Span(0, 2047))
		require.NoError(t, err)
		return y
	}
	transposed, err := memory.Transpose()
	require.NoError(t, err)
	require.EqualValues(t, mem.BlockSize, newStoredStream(memory).share())
	require.EqualValues(t, mem.BlockSize, newStoredStream(columns(reader)).share())
	share := newStoredStream(columns(memory)).share()
	require.Greater(t, share, int64(mem.BufferSize/4))
	require.LessOrEqual(t, share, columns(memory).Size()/8)
	share = newStoredStream(transposed).share()
	require.Zero(t, share%(256*3584), "whole columns, and cache lines of rows")
}
