package safetensors

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// A computation is the result of one computed tensor in one operation. The first read computes
// it. Its memory is freed when its readers have read all their bytes.
type computation struct {
	*computed
	memory *resultPool
	unread atomic.Int64 // bytes that its readers have not read yet

	mu     sync.Mutex // locked while the result is computed; guards the fields below
	words  []uint64   // memory of the result, from the pool
	result *source
	err    error
}

// computations are the results of all computed tensors in one operation, or in one of the files
// that it writes.
type computations struct {
	memory *resultPool    // nil for an operation that writes no file
	reads  reads          // limits concurrent reads; nil until a tensor is read from an io.ReaderAt
	list   []*computation // sorted in the order in which their results are needed
	byFunc map[*computed]*computation
}

// limit returns the limit of concurrent reads. The first call creates it.
func (all *computations) limit() reads {
	if all.reads == nil {
		all.reads = make(reads, readers)
	}
	return all.reads
}

// pool returns the memory for results. The first call creates it.
func (all *computations) pool() *resultPool {
	if all.memory == nil {
		all.memory = new(resultPool)
	}
	return all.memory
}

// reader registers one more reader of the result of a computed tensor, and returns the computation
// of that result. The origin of the tensor is from, and the reader will read size bytes.
func (all *computations) reader(from *computed, size int64) *computation {
	c := all.byFunc[from]
	if c == nil {
		if all.byFunc == nil {
			all.byFunc = make(map[*computed]*computation)
		}
		c = &computation{computed: from, memory: all.pool()}
		all.byFunc[from] = c
		all.list = append(all.list, c)
	}
	c.unread.Add(size)
	return c
}

// ahead computes tensors before they are needed, as many concurrently as processors and memory
// allow. After a call of stop no further func starts; stop waits until none is running.
func (all *computations) ahead() (stop func()) {
	if len(all.list) == 0 {
		return func() {}
	}
	stopped := false // guarded by all.memory.mu
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		for _, c := range all.list {
			if c.unread.Load() == 0 { // the tensor has no elements, or its result was read already
				continue
			}
			words, err := all.memory.get(c.size, &stopped)
			if err != nil {
				continue // readAt returns this error
			}
			if words == nil {
				return
			}
			running.Add(1)
			go func() {
				defer running.Done()
				c.compute(words) // c keeps the error, and readAt returns it
			}()
		}
	}()
	return func() {
		all.memory.mu.Lock()
		stopped = true
		all.memory.freed.Broadcast()
		all.memory.mu.Unlock()
		running.Wait()
	}
}

// compute returns the result. The first call stores the result in the slice words, or in memory
// from the pool if words is nil. Later calls return the slice to the pool.
func (c *computation) compute(words []uint64) (*source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.result != nil || c.err != nil {
		c.memory.put(words)
		return c.result, c.err
	}
	if words == nil {
		if words, c.err = c.memory.get(c.size, nil); c.err != nil {
			return nil, c.err
		}
	}
	b := mem.BytesOf(words)[:c.size:c.size]
	if c.err = c.fill(b); c.err != nil {
		c.memory.put(words)
		return nil, c.err
	}
	c.words, c.result = words, &source{mem: b}
	return c.result, nil
}

var errDropped = errors.New("the result of a computed tensor was dropped")

// markRead records that n bytes were read, and frees the result after the last one. An operation
// reads each byte once.
func (c *computation) markRead(n int64) {
	if c.unread.Add(-n) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.put(c.words)
	c.words, c.result, c.err = nil, nil, errDropped
}

// A computedStream produces the bytes of a computed tensor, or those that a slice of it selects.
type computedStream struct {
	*computation
	cached bool         // whether a cache frees the result, and not the last read
	same   storedStream // stream of the same elements in the result; resolve sets its source
}

// stream returns the stream of t, whose origin is c.
func (c *computed) stream(t Tensor, all *computations, cached *cache) *computedStream {
	s := &computedStream{cached: cached != nil, same: *newStoredStream(nil, t)}
	s.same.held = true // a result is never closed, so there is nothing to hold open
	if s.cached {
		s.computation = all.reader(c, 1)
		*cached = append(*cached, func() { s.computation.markRead(1) })
	} else {
		s.computation = all.reader(c, t.Size())
	}
	return s
}

func (s *computedStream) release() {}

func (s *computedStream) workers() int { return parallel.CopyWorkers() }

// markRead records that n bytes were read, unless a cache frees the result.
func (s *computedStream) markRead(n int64) {
	if !s.cached {
		s.computation.markRead(n)
	}
}

func (s *computedStream) block() int64 {
	if s.same.plain() {
		return mem.BlockSize // the stream lends its bytes, so they need not stay in the cache
	}
	return mem.BufferSize
}

// resolve returns the stream of the same part of the result, which it computes if need be.
func (s *computedStream) resolve() (*storedStream, error) {
	result, err := s.compute(nil)
	if err != nil {
		return nil, err
	}
	same := s.same
	same.src = result
	return &same, nil
}

func (s *computedStream) readAt(dst []byte, pos int64) error {
	if len(dst) == 0 {
		return nil
	}
	same, err := s.resolve()
	if err == nil {
		err = same.readAt(dst, pos)
	}
	if err == nil {
		s.markRead(int64(len(dst)))
	}
	return err
}

func (s *computedStream) lend(pos, n int64, write func([]byte) error) (lent bool, err error) {
	same, err := s.resolve()
	if err == nil {
		lent, err = same.lend(pos, n, write)
	}
	if lent && err == nil {
		s.markRead(n)
	}
	return lent, err
}
