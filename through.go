package safetensors

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gosafetensors/safetensors/internal/stride"
)

// Reshape returns t with another shape of as many elements, in row-major order, lazily.
// Reading gathers those that are not contiguous, which have no View.
func (t Tensor) Reshape(shape ...int) (Tensor, error) {
	if err := t.check(); err != nil {
		return Tensor{}, prefixed(err)
	}
	_, broken := checkShape(t.dtype, shape)
	have, _ := countElements(t.shape)
	if want, _ := countElements(shape); broken == "" && want != have {
		broken = fmt.Sprintf("it has %d elements, the new shape %d", have, want)
	}
	if broken != "" {
		return Tensor{}, prefixed(fmt.Errorf("reshaping %v to %s: %s", t, formatShape(shape), broken))
	}
	shape = slices.Clone(shape)
	if t.strides != nil {
		if strides, ok := t.split(shape); ok {
			if p, err := t.selecting(0, shape, strides); err == nil {
				return p, nil
			}
		}
	}
	if t.strides != nil || t.concat != nil {
		through := t
		t = Tensor{dtype: t.dtype, src: &source{tensor: &through}, size: t.Size()}
	}
	t.shape = shape
	return t, nil
}

// split returns the strides of the same elements in another shape, if they can express
// it: each new dimension is a part of what the old ones are when merged.
func (t Tensor) split(shape []int) (strides []int64, ok bool) {
	var merged gather // its strides count elements
	for i, n := range t.shape {
		merged.add(stride.Loop{N: int64(n), Stride: t.strides[i]})
	}
	strides = make([]int64, len(shape))
	for i, n := range slices.Backward(shape) {
		if n == 1 {
			continue // its stride says nothing
		}
		k := len(merged.loops) - 1
		rest := &merged.loops[k]
		if rest.N%int64(n) != 0 {
			return nil, false
		}
		strides[i] = rest.Stride
		rest.N /= int64(n)
		rest.Stride *= int64(n)
		if rest.N == 1 {
			merged.loops = merged.loops[:k]
		}
	}
	return strides, true
}

// A throughStream produces the bytes of a tensor whose data are the elements of another
// one, which Reshape could not express by strides.
type throughStream struct {
	stream // gathers and converts what inner produces

	inner stream
	drop  []func()     // each frees memory that inner keeps, as it is read in any order
	left  atomic.Int64 // bytes that were not read yet; an operation reads each once
}

func newThroughStream(t Tensor, all *computations) (stream, error) {
	s := newStoredStream(t)
	n := t.size
	if s.from != nil {
		n = s.from.extent()
	}
	part, at := t.src.tensor.around(t.off, n)
	if s.plain() && s.watch == nil && at == 0 && part.Size() == n {
		return part.stream(all)
	}
	through := new(throughStream)
	outer := all.kept
	if outer == nil {
		all.kept = &through.drop
	}
	var err error
	through.inner, err = part.stream(all)
	all.kept = outer
	if err != nil {
		return nil, err
	}
	s.src, s.held = &source{r: streamReader{through.inner}}, true // nobody closes it
	s.off = at
	through.stream = s
	if s.transposed {
		through.stream = newTransposedStream(s, all)
	}
	through.left.Store(s.bytes)
	return through, nil
}

func (s *throughStream) release()     { s.inner.release() }
func (s *throughStream) workers() int { return s.inner.workers() }
func (s *throughStream) block() int64 { return max(s.stream.block(), s.inner.block()) }

func (s *throughStream) readAt(dst []byte, pos int64) error {
	if err := s.stream.readAt(dst, pos); err != nil {
		return err
	}
	if s.left.Add(-int64(len(dst))) == 0 {
		for _, drop := range s.drop {
			drop()
		}
	}
	return nil
}

// A streamReader is a stream as the io.ReaderAt of a source.
type streamReader struct{ stream }

func (r streamReader) ReadAt(p []byte, off int64) (int, error) { return len(p), r.readAt(p, off) }
