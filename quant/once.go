package quant

import "sync"

// A once keeps what was read first. An error is not kept: the next call reads again.
type once[T any] struct {
	mu    sync.Mutex
	known bool
	value T
}

func (o *once[T]) get(read func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.known {
		return o.value, nil
	}
	v, err := read()
	if err == nil {
		o.known, o.value = true, v
	}
	return v, err
}
