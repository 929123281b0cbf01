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

	"github.com/gosafetensors/safetensors/internal/parallel"
)

// NewTensorFunc returns a tensor whose elements f computes when they are read. A
// merge, a quantisation or a download into a file works in bounded memory that
// way: WriteFile of a thousand of them holds the results of a few.
//
// An operation calls f once, when it first needs elements of the tensor, and not
// at all if it needs none. It keeps the result, which must have the dtype and the
// shape promised here, until it has read all of the tensor. Several f may run
// concurrently, also of one tensor in several operations. Slice, Convert, Bitcast
// and Concat compose with it; View does not.
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

// A computedStream produces the bytes of a computed tensor, or of a part of one. It
// computes the result when it is first read and drops it when every byte was.
type computedStream struct {
	t       Tensor
	left    atomic.Int64  // bytes not yet read
	dropped chan struct{} // closed when the result was dropped

	mu      sync.Mutex // held while the result is computed
	started bool
	result  stream
	err     error
}

func newComputedStream(t Tensor) *computedStream {
	c := &computedStream{t: t, dropped: make(chan struct{})}
	c.left.Store(t.Size())
	return c
}

func (c *computedStream) size() int64                 { return c.t.Size() }
func (c *computedStream) hold() error                 { return nil }
func (c *computedStream) release()                    { c.drop() }
func (c *computedStream) workers() int                { return parallel.CopyWorkers() }
func (c *computedStream) computed() []*computedStream { return []*computedStream{c} }

func (c *computedStream) readAt(dst []byte, pos int64) error {
	if len(dst) == 0 {
		return nil
	}
	result, err := c.compute()
	if err != nil {
		return err
	}
	if err := result.readAt(dst, pos); err != nil {
		return err
	}
	if c.left.Add(-int64(len(dst))) == 0 { // an operation reads each byte once
		c.drop()
		if s, ok := result.(*storedStream); ok && s.src.mem != nil && !s.src.mapped {
			collect(s.bytes)
		}
	}
	return nil
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

// compute returns the bytes of the result. The first call computes it.
func (c *computedStream) compute() (stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return c.result, c.err
	}
	c.started = true
	result, err := call(c.t.src.compute)
	if err == nil {
		err = c.t.src.checkResult(result)
	}
	if err == nil {
		c.result, err = c.t.of(result)
	}
	c.err = err
	return c.result, err
}

var errDropped = errors.New("the result of a computed tensor was dropped")

// drop lets go of the result.
func (c *computedStream) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == errDropped {
		return
	}
	c.started, c.result, c.err = true, nil, errDropped
	close(c.dropped)
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
		return t.stream()
	}
	if t.strided == nil && t.size == result.Size() && t.stored() == result.dtype { // all of it
		for _, d := range t.dtypes[min(1, len(t.dtypes)):] {
			var err error
			if result, err = result.convert(d); err != nil {
				return nil, err
			}
		}
		return result.stream()
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
	var list []*computedStream
	for _, s := range streams {
		list = append(list, s.computed()...)
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
