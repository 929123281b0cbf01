package remote

import (
	"errors"
	"io"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
)

// firstRead is the length of the range that the first request asks for: the
// header length and a header of 100,000 bytes.
const firstRead = 8 + 100_000

// An object is a remote file: an io.ReaderAt for concurrent use.
type object struct {
	*session
	url  *url.URL
	size int64  // -1 until the first answer
	head []byte // its first bytes; once it is open: the whole file, or nil
	open bool   // NewFile has read the header

	pinned place                 // of the first answer, which later ones must match
	found  atomic.Pointer[place] // of the last answer: where to ask next; nil: at url

	mu      sync.Mutex
	waiting []*pending // by offset: reads that no request has taken yet
}

// openFile opens the file at a URL.
func (s *session) openFile(u *url.URL) (*safetensors.File, error) {
	o := &object{session: s, url: u, size: -1}
	err := o.readHead()
	var f *safetensors.File
	if err == nil {
		if f, err = safetensors.NewFile(o, o.size); err != nil {
			err = bare(err)
		}
	}
	if err != nil {
		return nil, openError(u, err)
	}
	o.opened()
	return f, nil
}

// readHead reads the start of the file, with one request for a range that may
// reach beyond the end (RFC 9110, section 14.1.2). Some servers answer 416 if it
// does. If they tell the size, readHead asks for the whole file, else for the
// header length, because that answer tells the size, and then for the rest.
func (o *object) readHead() error {
	err := o.readFirst(firstRead)
	var refused *unsatisfiable
	if !errors.As(err, &refused) || refused.size >= firstRead {
		return err
	}
	if refused.size == 0 {
		o.size, o.head = 0, nil
		return nil
	}
	shorter := refused.size
	if shorter < 0 {
		shorter = 8
	}
	if err := o.readFirst(shorter); err != nil {
		return err
	}
	n := len(o.head)
	o.head = o.head[:min(o.size, firstRead)]
	if n == len(o.head) {
		return nil
	}
	return o.fetchNow([]part{{int64(n), o.head[n:]}})
}

// readFirst sets head to the first n bytes, or to all if the file is shorter,
// and size to the size of the file.
func (o *object) readFirst(n int64) error {
	o.head = make([]byte, n, firstRead)
	return o.fetchNow([]part{{0, o.head}})
}

// opened is called once NewFile has read the header.
func (o *object) opened() {
	if o.size > int64(len(o.head)) {
		o.head = nil
	}
	o.open = true
}

// ReadAt implements io.ReaderAt.
func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errNegative
	}
	want := p[:max(0, min(int64(len(p)), o.size-off))]
	n := 0
	if off < int64(len(o.head)) {
		n = copy(want, o.head[off:])
	}
	if err := o.read(part{off + int64(n), want[n:]}); err != nil {
		return n, err
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(p), nil
}

var errNegative = errors.New("negative offset")

// read fills a part, with its own request or together with other waiting reads.
func (o *object) read(p part) error {
	switch {
	case len(p.dst) == 0:
		return nil
	case !o.open: // the rest of a header: one request, whatever its length
		return o.fetchNow([]part{p})
	case len(p.dst) > maxSpan:
		return o.ReadRanges(func(yield func(int64, []byte) bool) { yield(p.off, p.dst) })
	}
	w := &pending{part: p, done: make(chan struct{})}
	o.enqueue(w)
	select {
	case <-w.done:
		return w.err
	case o.slots <- struct{}{}:
	}
	o.serve(w)
	<-w.done // another read may have taken it
	return w.err
}

var errAbandoned = errors.New("the request was abandoned")

// serve sends the request for a waiting read and those near it, unless another one
// has taken it. It gives its slot back. Every read taken gets an error, also if the
// transport panics.
func (o *object) serve(w *pending) {
	defer func() { <-o.slots }()
	taken := o.take(w)
	if taken == nil {
		return
	}
	err := errAbandoned
	defer func() {
		for _, t := range taken {
			t.err = err
			close(t.done)
		}
	}()
	parts := make([]part, len(taken))
	for i, t := range taken {
		parts[i] = t.part
	}
	err = o.fetch(parts)
}
