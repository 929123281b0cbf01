package safetensors

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// NewTensorFunc returns a tensor whose elements f computes when they are read. A
// merge, a quantisation or a download into a file works in bounded memory that
// way: WriteFile of a thousand of them holds the results of a few.
//
// An operation calls f once, when it first needs elements of the tensor, and not
// at all if it needs none. It keeps the result, which must have the dtype and the
// shape promised here, until it has read all that it needs. Several f may run
// concurrently, also of one tensor in several operations. Slice, Convert, Bitcast
// and Concat compose with it; View does not. Parts of one computed tensor share its
// result when one file is written, until the last of them is; the shards of
// WriteShards are files of their own.
//
// An error of f, a panic in it, and a result of another dtype or shape become the
// error of the operation. f may close files: the operation then fails where it
// still needs them.
func NewTensorFunc(dtype DType, shape []int, f func() (Tensor, error)) (Tensor, error) {
	size, broken := checkShape(dtype, shape)
	if broken != "" {
		return Tensor{}, prefixed(&FormatError{Offset: -1, Reason: broken})
	}
	if f == nil {
		return Tensor{}, prefixed(errors.New("the func of a computed tensor is nil"))
	}
	shape = slices.Clone(shape)
	src := &source{compute: f, dtype: dtype, shape: shape}
	return Tensor{dtype: dtype, shape: shape, src: src, size: size}, nil
}

// A computation is the result of one computed tensor in one operation. The first
// read makes it; it is dropped when its readers have read all their bytes.
type computation struct {
	src     *source
	left    atomic.Int64  // bytes that its readers have not read yet
	dropped chan struct{} // closed when the result was dropped

	mu      sync.Mutex // held while the result is computed
	started bool
	result  Tensor
	err     error
}

// computations are those of one operation, by the source of the tensor.
type computations map[*source]*computation

// of returns the computation of a source for one more reader, of size bytes.
func (all computations) of(src *source, size int64) *computation {
	c := all[src]
	if c == nil {
		c = &computation{src: src, dropped: make(chan struct{})}
		all[src] = c
	}
	c.left.Add(size)
	return c
}

// compute returns the result. The first call computes it.
func (c *computation) compute() (Tensor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started {
		c.started = true
		if c.result, c.err = call(c.src.compute); c.err == nil {
			c.err = c.src.checkResult(c.result)
		}
	}
	return c.result, c.err
}

var errDropped = errors.New("the result of a computed tensor was dropped")

// read notes that n bytes were read, and drops the result after the last. An
// operation reads each byte once.
func (c *computation) read(n int64) {
	if c.left.Add(-n) > 0 {
		return
	}
	if s := c.result.src; s != nil && s.inMemory() {
		defer collect(c.result.Size())
	}
	c.drop()
}

// drop lets go of the result.
func (c *computation) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == errDropped {
		return
	}
	c.started, c.result, c.err = true, Tensor{}, errDropped
	close(c.dropped)
}

// A computedStream produces the bytes of a computed tensor, or of a part of one.
type computedStream struct {
	*computation
	t    Tensor
	rest atomic.Int64 // bytes not yet read

	once sync.Once
	same stream // the same part of the result
	err  error
}

func newComputedStream(t Tensor, shared computations) *computedStream {
	c := &computedStream{computation: shared.of(t.src, t.Size()), t: t}
	c.rest.Store(t.Size())
	return c
}

func (c *computedStream) size() int64              { return c.t.Size() }
func (c *computedStream) hold() error              { return nil }
func (c *computedStream) release()                 { c.drop() }
func (c *computedStream) workers() int             { return parallel.CopyWorkers() }
func (c *computedStream) block() int64             { return mem.BlockSize } // of whatever its func returns
func (c *computedStream) computed() []*computation { return []*computation{c.computation} }

func (c *computedStream) readAt(dst []byte, pos int64) error {
	if len(dst) == 0 {
		return nil
	}
	same, err := c.resolve()
	if err == nil {
		err = same.readAt(dst, pos)
	}
	if err == nil {
		c.passed(int64(len(dst)))
	}
	return err
}

func (c *computedStream) lend(pos, n int64, write func([]byte) error) (lent bool, err error) {
	same, err := c.resolve()
	if err == nil {
		lent, err = same.lend(pos, n, write)
	}
	if lent && err == nil {
		c.passed(n)
	}
	return lent, err
}

// resolve returns the same part of the result.
func (c *computedStream) resolve() (stream, error) {
	c.once.Do(func() {
		var result Tensor
		if result, c.err = c.compute(); c.err == nil {
			c.same, c.err = c.t.of(result)
		}
	})
	return c.same, c.err
}

// passed notes that n bytes were read or lent.
func (c *computedStream) passed(n int64) {
	if c.rest.Add(-n) == 0 {
		c.same, c.err = nil, errDropped // nobody reads it again
	}
	c.read(n)
}

// garbage is how many bytes of results were dropped since the last collect that
// did anything.
var garbage atomic.Int64

// collect runs the garbage collector after results of n more bytes were dropped,
// when they have become many. It would run by itself only when the heap has
// doubled, and the results are most of the heap: 200 tensors of 64 MB peaked at
// 610 to 880 MB without this. Where they are not, it is left alone.
func collect(n int64) {
	const many = 64 << 20
	if garbage.Add(n) < many {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	if garbage.Load() < int64(live[0].Value.Uint64()/2) {
		return
	}
	garbage.Store(0)
	runtime.GC()
}

// call calls f on a goroutine of its own, so that a panic and runtime.Goexit
// become errors.
func call(f func() (Tensor, error)) (t Tensor, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the func of a computed tensor panicked: %v\n\n%s", p, debug.Stack())
			}
		}()
		err = errors.New("the func of a computed tensor called runtime.Goexit")
		t, err = f()
	}()
	<-done
	return t, bare(err)
}

// checkResult checks that a result is what was promised.
func (s *source) checkResult(result Tensor) error {
	if err := result.check(); err != nil {
		return err
	}
	if result.dtype != s.dtype || !slices.Equal(result.shape, s.shape) {
		return fmt.Errorf("the func of a computed tensor returned %v instead of %v %s", result, s.dtype, formatShape(s.shape))
	}
	return nil
}

// of returns the bytes of t, a part of a computed tensor, as the same part of its
// result.
func (t Tensor) of(result Tensor) (stream, error) {
	if result.concat == nil && result.strided == nil && result.dtypes == nil {
		t.src, t.off = result.src, t.off+result.off
		return t.stream(computations{})
	}
	if t.strided == nil && t.size == result.Size() && t.stored() == result.dtype { // all of it
		for _, d := range t.dtypes[min(1, len(t.dtypes)):] {
			var err error
			if result, err = result.convert(d); err != nil {
				return nil, err
			}
		}
		return result.stream(computations{})
	}
	data, err := appendTo[byte](nil, result)
	t.src = &source{mem: data}
	s := newStoredStream(t)
	return s, err
}

// computeAhead computes the computed tensors of streams that are read one after
// another before they are read, as many concurrently as there are processors. stop
// waits until no func runs any more.
func computeAhead(streams []stream) (stop func()) {
	var list []*computation
	for _, s := range streams {
		for _, c := range s.computed() {
			if !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	if len(list) == 0 {
		return func() {}
	}
	slots := make(chan struct{}, parallel.CopyWorkers())
	quit := make(chan struct{})
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		for _, c := range list {
			if c.left.Load() == 0 { // without elements, or read already
				continue
			}
			select {
			case slots <- struct{}{}:
			case <-quit:
				return
			}
			all.Add(1)
			go func() {
				defer all.Done()
				c.compute() // readAt reports its error
				select {
				case <-c.dropped:
				case <-quit:
				}
				<-slots
			}()
		}
	}()
	return func() {
		close(quit)
		all.Wait()
	}
}
