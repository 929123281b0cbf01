package safetensors

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// NewTensorFunc returns a tensor whose elements fill computes when they are read. fill
// writes every element of dst, in row-major order. dst is pooled memory: it starts with
// arbitrary values and must not be kept. T is as for NewTensor.
//
// Within one file all parts share one call of fill; WriteShards calls it once per shard
// that holds a part. Several fills may run concurrently; none may
// wait for another. An error of fill, a panic and runtime.Goexit become the error of the
// operation. fill may close files: the operation then fails where it still needs them.
func NewTensorFunc[T Element](dtype DType, shape []int, fill func(dst []T) error) (Tensor, error) {
	if fill == nil {
		return Tensor{}, prefixed(errors.New("the func of a computed tensor is nil"))
	}
	t, err := newTensor[T](dtype, shape)
	if err != nil {
		return Tensor{}, prefixed(err)
	}
	t.src = &source{computed: &computed{
		size: t.size,
		fill: func(b []byte) error {
			dst, _ := mem.SliceOf[T](b) // the memory of results is aligned
			err := call(func() error { return fill(dst) })
			mem.Swap[T](b)
			return err
		},
	}}
	return t, nil
}

// A computed is what makes the data of a computed tensor.
type computed struct {
	size int64                // of the result in bytes, not 0 where it is needed
	fill func(b []byte) error // with the bytes of a file
}

// A computation is the result of one computed tensor in one operation. The first
// read makes it; its memory is free again when its readers have read all their bytes.
type computation struct {
	*computed
	memory *resultPool
	left   atomic.Int64 // bytes that its readers have not read yet

	mu     sync.Mutex // held while the result is computed
	words  []uint64   // the memory of the result
	result *source
	err    error
}

// computations are those of one operation, or of one of the files that it writes.
type computations struct {
	memory *resultPool    // nil for an operation that writes no file
	reads  reads          // nil as long as no tensor is read from an io.ReaderAt
	list   []*computation // in the order in which they are needed
	of     map[*computed]*computation
	kept   *[]func() // while a stream is made whose bytes are read in any order, in place of once: the funcs that free what it keeps
}

// limit returns what limits the reads.
func (all *computations) limit() reads {
	if all.reads == nil {
		all.reads = make(reads, readers)
	}
	return all.reads
}

// pool returns the memory of the results.
func (all *computations) pool() *resultPool {
	if all.memory == nil {
		all.memory = new(resultPool)
	}
	return all.memory
}

// reader returns the computation of a computed tensor for one more reader, of size
// bytes.
func (all *computations) reader(of *computed, size int64) *computation {
	c := all.of[of]
	if c == nil {
		if all.of == nil {
			all.of = make(map[*computed]*computation)
		}
		c = &computation{computed: of, memory: all.pool()}
		all.of[of] = c
		all.list = append(all.list, c)
	}
	c.left.Add(size)
	return c
}

// ahead computes the tensors before they are needed, as many concurrently as there
// are processors and room. stop waits until no func runs any more.
func (all *computations) ahead() (stop func()) {
	if len(all.list) == 0 {
		return func() {}
	}
	stopped := false // guarded by the mutex of the memory
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		for _, c := range all.list {
			if c.left.Load() == 0 { // without elements, or read already
				continue
			}
			words, err := all.memory.take(c.size, &stopped)
			if err != nil {
				continue // as readAt will report
			}
			if words == nil {
				return
			}
			running.Add(1)
			go func() {
				defer running.Done()
				c.compute(words) // readAt reports its error
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

// compute returns the result. The first call computes it: in words, which may be nil.
func (c *computation) compute(words []uint64) (*source, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.result != nil || c.err != nil {
		c.memory.put(words)
		return c.result, c.err
	}
	if words == nil {
		if words, c.err = c.memory.take(c.size, nil); c.err != nil {
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

// read notes that n bytes were read, and drops the result after the last. An
// operation reads each byte once.
func (c *computation) read(n int64) {
	if c.left.Add(-n) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.memory.put(c.words)
	c.words, c.result, c.err = nil, nil, errDropped
}

// call calls f on a goroutine of its own, so that a panic and runtime.Goexit
// become errors.
func call(f func() error) (err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the func of a computed tensor panicked: %v\n\n%s", p, debug.Stack())
			}
		}()
		err = errors.New("the func of a computed tensor called runtime.Goexit")
		err = f()
	}()
	<-done
	return bare(err)
}

// A computedStream produces the bytes of a computed tensor, or of a part of one.
type computedStream struct {
	*computation
	kept bool         // until a throughStream drops it
	same storedStream // the same part of the result, but for its source
}

func newComputedStream(t Tensor, all *computations) *computedStream {
	s := &computedStream{kept: all.kept != nil, same: *newStoredStream(t)}
	s.same.held = true // nobody closes a result
	if s.kept {
		s.computation = all.reader(t.src.computed, 1)
		*all.kept = append(*all.kept, func() { s.computation.read(1) })
	} else {
		s.computation = all.reader(t.src.computed, t.Size())
	}
	return s
}

func (s *computedStream) release()     {}
func (s *computedStream) workers() int { return parallel.CopyWorkers() }

func (s *computedStream) read(n int64) {
	if !s.kept {
		s.computation.read(n)
	}
}

func (s *computedStream) block() int64 {
	if s.same.plain() {
		return mem.BlockSize // which is lent
	}
	return mem.BufferSize
}

// resolve returns the same part of the result.
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
		s.read(int64(len(dst)))
	}
	return err
}

func (s *computedStream) lend(pos, n int64, write func([]byte) error) (lent bool, err error) {
	same, err := s.resolve()
	if err == nil {
		lent, err = same.lend(pos, n, write)
	}
	if lent && err == nil {
		s.read(n)
	}
	return lent, err
}
