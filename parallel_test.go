package safetensors

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParallel(t *testing.T) {
	for _, workers := range []int{1, 3, 100} {
		for _, n := range []int64{0, 1, 2, 57} {
			var calls [57]atomic.Int32
			require.NoError(t, parallel(workers, n, func(i int64) error {
				calls[i].Add(1)
				return nil
			}))
			for i := range calls {
				require.Equal(t, int64(i) < n, calls[i].Load() == 1)
			}
		}
		failure := errors.New("failure")
		var begun atomic.Int64
		require.ErrorIs(t, parallel(workers, 1<<40, func(i int64) error {
			if begun.Add(1) == 200 {
				return failure
			}
			return nil
		}), failure, "and it stops")
	}
}

func TestInOrder(t *testing.T) {
	var made, running atomic.Int64
	next := int64(0)
	produce := func(i int64) (*block, error) {
		require.LessOrEqual(t, running.Add(1), int64(aheadBlocks+2), "memory is bounded")
		made.Add(1)
		return filled(8, func(b []byte) error {
			b[0] = byte(i)
			return nil
		})
	}
	use := func(i int64, b *block) error {
		require.Equal(t, next, i)
		require.Equal(t, byte(i), b.bytes[0])
		next++
		running.Add(-1)
		return nil
	}
	require.NoError(t, inOrder(300, produce, use))
	require.EqualValues(t, 300, next)

	failure := errors.New("failure")
	made.Store(0)
	running.Store(-1 << 40)
	require.ErrorIs(t, inOrder(1<<40, produce, func(i int64, _ *block) error {
		if i == 20 {
			return failure
		}
		return nil
	}), failure)
	require.Less(t, made.Load(), int64(40), "it stops")
	require.ErrorIs(t, inOrder(1<<40, func(i int64) (*block, error) {
		if i == 20 {
			return nil, failure
		}
		return nil, nil
	}, func(int64, *block) error { return nil }), failure)
}
