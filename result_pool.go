package safetensors

import (
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// aheadBytes limits the memory of all results, in bytes, when a tensor is to be computed before a
// reader needs it: the computation waits until its result fits. Two results of any size are always
// allowed.
const aheadBytes = 256 << 20

// mostInFlight limits the memory of pieces, in bytes, that one operation has read and not yet
// written, in all files that it writes. One piece of any size is always allowed.
const mostInFlight = 64 << 20

// A resultPool is the memory for the results of computed tensors in one operation, and for the
// matrices that transposed tensors hold. It is reused from tensor to tensor. It also counts the
// memory of pieces that are on their way to files.
type resultPool struct {
	mu    sync.Mutex // guards all fields
	freed sync.Cond  // signaled when a result is freed
	free  [][]uint64 // memory for reuse; words, so that it is aligned for every Element
	used  int        // number of results that exist
	bytes int64      // bytes that these results take

	written  sync.Cond // signaled when a piece is written
	inFlight int64     // bytes that pieces take
}

// enter waits until there is room for a piece that takes n bytes. The caller must call leave when
// the piece is written. Pieces of up to mem.BufferSize bytes do not wait, because even all of them
// together are small.
func (r *resultPool) enter(n int64) (leave func()) {
	if n <= mem.BufferSize {
		return func() {}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.written.L == nil { // set only once: another goroutine may be waiting
		r.written.L = &r.mu
	}
	for r.inFlight > 0 && r.inFlight+n > mostInFlight {
		r.written.Wait()
	}
	r.inFlight += n
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.inFlight -= n
		r.written.Broadcast()
	}
}

// get returns memory of at least n bytes. stopped is not nil if no reader needs the result yet:
// then get waits for room, and returns nil once *stopped is true. Otherwise it never waits,
// because the reader cannot finish with other results before it has this one.
func (r *resultPool) get(n int64, stopped *bool) ([]uint64, error) {
	const small = 1 << 20 // memory of at most this many bytes may be reused even if it is more than twice as large as the result
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.freed.L == nil { // set only once: another goroutine may be waiting
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

// put returns the memory of a result to the pool. If the slice words is nil, it does nothing.
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
