package safetensors

import "sync/atomic"

// A throughStream produces the bytes of a tensor whose origin is a through.
type throughStream struct {
	stream // gathers and converts the bytes of inner

	inner  stream
	cached cache        // frees the memory that inner holds because it is read in any order
	unread atomic.Int64 // number of bytes that have not been read yet; an operation reads each byte once
}

// stream returns the stream of t, which has elements and whose origin is from.
func (from *through) stream(t Tensor, all *computations, cached *cache) (stream, error) {
	s := newStoredStream(nil, t)
	n := t.size
	if s.from != nil {
		n = s.from.extent()
	}
	part, at := from.around(t.off, n)
	if s.plain() && s.watch == nil && at == 0 && part.Size() == n {
		return part.stream(all, cached)
	}
	outer := new(throughStream)
	innerCache := cached // if outer is itself read in any order, its reader also frees the memory of inner
	if innerCache == nil {
		innerCache = &outer.cached
	}
	var err error
	if outer.inner, err = part.stream(all, innerCache); err != nil {
		return nil, err
	}
	s.src, s.held = &source{r: streamReader{outer.inner}}, true // nobody closes it
	s.off = at
	outer.stream = s
	if s.transposed {
		outer.stream = newTransposedStream(s, all, cached)
	}
	outer.unread.Store(s.bytes)
	return outer, nil
}

func (s *throughStream) release() { s.inner.release() }

func (s *throughStream) workers() int { return s.inner.workers() }

func (s *throughStream) block() int64 { return max(s.stream.block(), s.inner.block()) }

func (s *throughStream) readAt(dst []byte, pos int64) error {
	if err := s.stream.readAt(dst, pos); err != nil {
		return err
	}
	if s.unread.Add(-int64(len(dst))) == 0 {
		s.cached.freeAll()
	}
	return nil
}

// A streamReader makes a stream the io.ReaderAt of a source.
type streamReader struct{ stream }

func (r streamReader) ReadAt(p []byte, off int64) (int, error) { return len(p), r.readAt(p, off) }
