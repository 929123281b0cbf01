package safetensors

// stream returns the stream of t for an operation. all holds the computations of the operation:
// stream adds one for each computed tensor on which t depends. cached is nil if the operation reads
// each byte once. Otherwise results of computations stay in memory, and stream appends the funcs
// that free them to cached. The caller must call release.
func (t Tensor) stream(all *computations, cached *cache) (stream, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	// This is not a method of origin, so that the computations of most operations stay on the stack.
	switch from := t.origin.(type) {
	case *source:
		return from.stream(t, all, cached)
	case *computed:
		return from.stream(t, all, cached), nil
	case *concat:
		return from.stream(all, cached)
	case *through:
		if t.size > 0 {
			return from.stream(t, all, cached)
		}
	}
	return new(source).stream(t, all, cached) // without elements, nothing is read
}

// stream returns the stream of t, whose origin is src, and holds src open.
func (src *source) stream(t Tensor, all *computations, cached *cache) (stream, error) {
	s := newStoredStream(src, t)
	if err := s.use(); err != nil {
		return nil, err
	}
	s.held = true
	if data, _ := src.memory(); data == nil {
		s.limit = all.limit()
	}
	if s.transposed && !src.inMemory() {
		return newTransposedStream(s, all, cached), nil
	}
	return s, nil
}

// open is like stream, but holds no source open if computed tensors are involved, since their
// funcs may close files.
func (t Tensor) open() (stream, error) {
	var all computations
	s, err := t.stream(&all, nil)
	if err == nil && len(all.list) > 0 {
		s.release()
	}
	return s, err
}
