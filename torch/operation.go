package torch

import "sync"

const (
	// maxVisited and maxText limit the expansion of containers that are referenced many times. They
	// apply to all files of an operation together.
	maxVisited = 1 << 22
	maxText    = 100_000_000 // bytes of names, shapes and metadata; as many as a header may have

	// pickles is the number of pickles that are read concurrently. A pickle of up to smallPickle
	// bytes takes up to 128 MiB of memory. A larger one takes up to half a gigabyte, and is read
	// alone.
	pickles     = 4
	smallPickle = 1 << 20
)

// An operation opens files that belong together, and share one budget of memory. Its methods may be
// called concurrently.
type operation struct {
	mu            sync.Mutex
	visited, text int

	waiting sync.Mutex    // held by the file that gets the next free slots, so that smaller pickles cannot overtake a large one
	slots   chan struct{} // holds an element for each pickle that is being read
}

func newOperation() *operation { return &operation{slots: make(chan struct{}, pickles)} }

// charge counts one visit to a value, and as many bytes of names, shapes and metadata as text states.
// It returns an error once the visits or the bytes exceed their limit.
func (o *operation) charge(text int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.visited++
	o.text += text
	if o.visited > maxVisited || o.text > maxText {
		return errTooMuch
	}
	return nil
}

// turn waits until a pickle of size bytes may be read. The caller must call end when it needs
// neither the pickle nor its values any more.
func (o *operation) turn(size int64) (end func()) {
	n := 1
	if size > smallPickle {
		n = pickles
	}
	o.waiting.Lock()
	defer o.waiting.Unlock()
	for range n {
		o.slots <- struct{}{}
	}
	return sync.OnceFunc(func() {
		for range n {
			<-o.slots
		}
	})
}

// A session reads one file in an operation.
type session struct {
	*operation
	end func() // ends the turn; nil until start is called
}

// start waits until the pickle of the file may be read. size is the length of the pickle in bytes.
func (s *session) start(size int64) { s.end = s.turn(size) }

// close ends the turn, if start was called.
func (s *session) close() {
	if s.end != nil {
		s.end()
	}
}
