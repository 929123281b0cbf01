package safetensors

import (
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/stretchr/testify/require"
)

// TestShare: a gather from memory is divided among the processors even if it has fewer bytes than a
// block.
func TestShare(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	data := make([]byte, 7<<20)
	memory := must(NewTensor(U8, []int{3584, 2048}, data))
	reader := must(NewTensorAt(U8, []int{3584, 2048}, zeros{}))
	columns := func(x Tensor) Tensor {
		return must(x.Slice(All(), Span(0, 2047)))
	}
	transposed := must(memory.Transpose())
	streamOf := func(x Tensor) *storedStream { return newStoredStream(x.origin.(*source), x) }
	require.EqualValues(t, mem.BlockSize, streamOf(memory).share())
	require.EqualValues(t, mem.BlockSize, streamOf(columns(reader)).share())
	share := streamOf(columns(memory)).share()
	require.Greater(t, share, int64(mem.BufferSize/4))
	require.LessOrEqual(t, share, columns(memory).Size()/8)
	share = streamOf(transposed).share()
	require.Zero(t, share%(256*3584), "whole columns, and cache lines of rows")
}

// TestFreeSmallResults: the pool reuses memory that is somewhat too large. It drops memory that is
// too small for a result, but only as much as is necessary to make room.
func TestFreeSmallResults(t *testing.T) {
	r := new(resultPool)
	large := must(r.get(1<<20, nil))
	r.put(large)
	require.Same(t, &large[0], &must(r.get(8, nil))[0])
	r = new(resultPool)
	first, second := must(r.get(8, nil)), must(r.get(8, nil))
	r.put(first)
	r.put(second)
	r.bytes = aheadBytes - 24 // as if other results took that memory
	must(r.get(16, nil))
	require.Len(t, r.free, 1)
	require.Same(t, &second[0], &r.free[0][0], "the older one goes")
	must(r.get(16, nil))
	require.Empty(t, r.free)
}

// TestPiecesInFlight: the pieces of one operation that are on their way to files take at most
// mostInFlight bytes of memory, including the buffers of conversions. A larger piece waits until it
// is alone, and small pieces do not wait.
func TestPiecesInFlight(t *testing.T) {
	r := new(resultPool)
	var now, most atomic.Int64
	var all sync.WaitGroup
	for i := range 256 {
		all.Add(1)
		go func() {
			defer all.Done()
			n := int64(rangeSize) << (i % 2)
			defer r.enter(n)()
			at := now.Add(n)
			for known := most.Load(); at > known && !most.CompareAndSwap(known, at); known = most.Load() {
			}
			runtime.Gosched()
			now.Add(-n)
		}()
	}
	all.Wait()
	require.LessOrEqual(t, most.Load(), int64(mostInFlight))
	require.Zero(t, r.inFlight)

	leave := r.enter(2 * mostInFlight)
	r.enter(mem.BufferSize)()
	leave()
	require.EqualValues(t, mostInFlight, readers*rangeSize, "all readers have room")

	stored := must(NewTensorAt(F32, []int{4 << 20}, noRanges{}))
	converted := must(stored.Convert(F16))
	for _, c := range []struct {
		of   Tensor
		want int64
	}{{stored, rangeSize}, {converted, 2 * rangeSize}, {must(Concat(0, converted, converted)), 2 * rangeSize}} {
		s := must(c.of.stream(new(computations), nil))
		require.EqualValues(t, rangeSize, s.block())
		require.Equal(t, c.want, memoryFor(s, rangeSize))
		s.release()
	}
}

// noRanges is a RangeReader that must not be read.
type noRanges struct{ zeros }

func (noRanges) ReadRanges(iter.Seq2[int64, []byte]) error { panic("it is read") }

// TestReadTwice: with a cache, a stream may be read twice, whatever the origin of its tensor, and
// freeAll frees all results. Without a cache, a result is freed after its last byte was read.
func TestReadTwice(t *testing.T) {
	computed := must(NewTensorFunc(U8, []int{4, 6}, func(dst []uint8) error { clear(dst); return nil }))
	joined := must(Concat(0, computed, must(must(computed.Transpose()).Reshape(4, 6))))
	for name, x := range map[string]Tensor{
		"computed": computed,
		"joined":   joined,
		"reshaped": must(joined.Reshape(48)),
	} {
		var held cache
		all := new(computations)
		s := must(x.stream(all, &held))
		for range 2 {
			require.NoError(t, s.readAt(make([]byte, x.Size()), 0), name)
		}
		require.Equal(t, 1, all.memory.used, name)
		held.freeAll()
		require.Zero(t, all.memory.used, name)
		require.ErrorIs(t, s.readAt(make([]byte, x.Size()), 0), errDropped, name)
	}
}
