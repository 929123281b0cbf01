package parallel

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

var errFailure = errors.New("failure")

// TestDoStopsAtAnError: after an error no further calls start, although a trillion are left.
func TestDoStopsAtAnError(t *testing.T) {
	for _, workers := range []int{1, 3, 100} {
		var calls atomic.Int64
		require.ErrorIs(t, Do(workers, 1<<40, func(i int64) error {
			if calls.Add(1) == 200 {
				return errFailure
			}
			return nil
		}), errFailure)
		require.Less(t, calls.Load(), int64(1<<30))
	}
}

// TestDoReturnsTheLowestError: the first call fails after the second has.
func TestDoReturnsTheLowestError(t *testing.T) {
	for range 100 {
		second := make(chan struct{})
		err := Do(3, 50, func(i int64) error {
			switch i {
			case 0:
				<-second
				runtime.Gosched()
				return errFailure
			case 1:
				close(second)
			}
			return errors.New("another failure")
		})
		require.ErrorIs(t, err, errFailure)
	}
}

// TestBlocksCoverTheSize: every byte lies in exactly one block.
func TestBlocksCoverTheSize(t *testing.T) {
	for _, workers := range []int{1, 3, 100} {
		for _, size := range []int64{0, 1, 7, 8, 9, 64, 456} {
			var covered [456]atomic.Int32
			require.NoError(t, Blocks(workers, size, 8, func(pos, n int64) error {
				for i := pos; i < pos+n; i++ {
					covered[i].Add(1)
				}
				return nil
			}))
			for i := range covered {
				require.Equal(t, int64(i) < size, covered[i].Load() == 1, "byte %d of %d", i, size)
			}
		}
	}
	require.Equal(t, int64(1)<<60, BlockCount(1<<63-1, 8), "no overflow")
}

// TestInOrderUsesInOrder: values are used in order, and no more are held at a time than InOrder
// promises.
func TestInOrderUsesInOrder(t *testing.T) {
	const ahead = 4
	var held, most atomic.Int64
	next := int64(0)
	require.NoError(t, InOrder(ahead, 300, func(i int64) (int64, error) {
		for n := held.Add(1); n > most.Load(); {
			most.Store(n)
		}
		return i, nil
	}, func(i, v int64) error {
		require.Equal(t, next, i)
		require.Equal(t, i, v)
		next++
		held.Add(-1)
		return nil
	}, func(int64) { held.Add(-1) }))
	require.EqualValues(t, 300, next)
	require.LessOrEqual(t, most.Load(), int64(ahead+2), "memory is bounded")
}

// TestInOrderStopsAtAnError: an error in either stage ends both, and every value that was produced
// is used or dropped.
func TestInOrderStopsAtAnError(t *testing.T) {
	for _, stage := range []string{"produce", "use"} {
		t.Run(stage, func(t *testing.T) {
			var produced, used, dropped atomic.Int64
			require.ErrorIs(t, InOrder(4, 1<<40, func(i int64) (int64, error) {
				if stage == "produce" && i == 20 {
					return 0, errFailure
				}
				produced.Add(1)
				return i, nil
			}, func(i, _ int64) error {
				used.Add(1)
				if stage == "use" && i == 20 {
					return errFailure
				}
				return nil
			}, func(int64) { dropped.Add(1) }), errFailure)
			require.Less(t, produced.Load(), int64(40))
			require.Equal(t, produced.Load(), used.Load()+dropped.Load(), "each value is used or dropped")
		})
	}
}

// TestCallbacksThatEnd: if a callback panics or ends its goroutine, the caller learns of it, and no
// goroutine is left waiting.
func TestCallbacksThatEnd(t *testing.T) {
	discard := func(int64, int64) error { return nil }
	drop := func(int64) {}
	for name, run := range map[string]func(f func(i int64) error) error{
		"Do": func(f func(i int64) error) error { return Do(3, 50, f) },
		"InOrder": func(f func(i int64) error) error {
			return InOrder(4, 50, func(i int64) (int64, error) { return i, f(i) }, discard, drop)
		},
	} {
		require.PanicsWithValue(t, "boom", func() {
			run(func(i int64) error {
				if i == 20 {
					panic("boom")
				}
				return nil
			})
		}, name)
		require.ErrorIs(t, run(func(i int64) error {
			if i == 20 {
				runtime.Goexit()
			}
			return nil
		}), errGoexit, name)
	}
	dropped := 0
	require.PanicsWithValue(t, "use", func() {
		InOrder(4, 50, func(i int64) (int64, error) { return i, nil }, func(i, _ int64) error {
			if i == 20 {
				panic("use")
			}
			return nil
		}, func(int64) { dropped++ })
	})
	require.Positive(t, dropped, "what was produced ahead")
}
