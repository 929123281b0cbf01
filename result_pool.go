package safetensors

import (
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// aheadBytes is how much memory results take while others are computed ahead of their
// use; two of any size may be there.
const aheadBytes = 256 << 20

// A resultPool is the memory that the computed tensors of one operation have for their
// results, and transposed ones for what they hold. It is reused from tensor to tensor.
type resultPool struct {
	mu    sync.Mutex
	freed sync.Cond
	free  [][]uint64 // words, so that they are aligned for every Element
	used  int        // results that exist
	bytes int64      // which they take
}

// take returns memory of at least n bytes. For a result that nobody asks for yet, stopped
// is not nil: it waits until there is room for one more, and returns nil once stopped is
// true. Else it never waits: a reader needs the result before it can finish with others.
func (r *resultPool) take(n int64, stopped *bool) ([]uint64, error) {
	const small = 1 << 20 // bytes that may be wasted on a result
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.freed.L == nil { // else another one may wait
		r.freed.L = &r.mu
	}
	for stopped != nil && !*stopped && r.used >= 2 && (r.used >= parallel.CopyWorkers() || r.bytes+n > aheadBytes) {
		r.freed.Wait()
	}
	if stopped != nil && *stopped {
		return nil, nil
	}
	if err := mem.CheckSize(n); err != nil {
		return nil, err
	}
	best, free := -1, int64(0)
	for i, words := range r.free {
		size := sizeOfWords(words)
		free += size
		if size >= n && size <= max(2*n, small) && (best < 0 || len(words) < len(r.free[best])) {
			best = i
		}
	}
	var words []uint64
	if best >= 0 {
		words = r.free[best]
		r.free = slices.Delete(r.free, best, best+1)
	} else {
		for ; len(r.free) > 0 && r.bytes+free+n > aheadBytes; r.free = slices.Delete(r.free, 0, 1) {
			free -= sizeOfWords(r.free[0])
		}
		words = mem.Allocate[uint64](int((n + 7) / 8))
	}
	r.used++
	r.bytes += sizeOfWords(words)
	return words, nil
}

// put frees the memory of a result. nil is none.
func (r *resultPool) put(words []uint64) {
	if words == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, words)
	r.used--
	r.bytes -= sizeOfWords(words)
	r.freed.Broadcast()
}

func sizeOfWords(words []uint64) int64 { return 8 * int64(len(words)) }
