package remote

import (
	"errors"
	"io"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
)

// firstRead is how much of a file the first request asks for: the header length
// and a header of 100,000 bytes.
const firstRead = 8 + 100_000

// An object is a remote file. It is an io.ReaderAt whose calls may be concurrent.
type object struct {
	*session
	url  *url.URL
	size int64  // -1 until the first answer
	head []byte // its first bytes; dropped once it is open, unless they are all
	open bool   // NewFile has read the header

	pinned place                 // of the first answer: what later ones must agree with
	found  atomic.Pointer[place] // of the last answer: where to ask next; nil: at url

	mu      sync.Mutex
	waiting []*pending // by offset: reads that no request has taken up yet
}

// openFile opens the file at a URL. It also returns the place of the first answer.
func (s *session) openFile(u *url.URL) (*safetensors.File, place, error) {
	o := &object{session: s, url: u, size: -1}
	err := o.readHead()
	var f *safetensors.File
	if err == nil {
		if f, err = safetensors.NewFile(o, o.size); err != nil {
			err = bare(err)
		}
	}
	if err != nil {
		return nil, o.pinned, openError(u, err)
	}
	o.opened()
	return f, o.pinned, nil
}

// readHead sends the first request.
func (o *object) readHead() error {
	o.head = make([]byte, firstRead)
	if err := o.fetchNow([]part{{0, o.head}}); err != nil {
		return err
	}
	o.head = o.head[:min(o.size, firstRead)]
	return nil
}

// opened ends the part of the header.
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

var errNegative = errors.New("remote: negative offset")

// read fills a part: with a request of its own, or together with others that
// wait at the same time.
func (o *object) read(p part) error {
	switch {
	case len(p.dst) == 0:
		return nil
	case !o.open: // the rest of a header, which is to cost one request whatever its length
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
	if taken := o.take(w); taken != nil {
		parts := make([]part, len(taken))
		for i, t := range taken {
			parts[i] = t.part
		}
		err := o.fetch(parts)
		for _, t := range taken {
			t.err = err
			close(t.done)
		}
	}
	<-o.slots
	<-w.done // if it was taken with another one
	return w.err
}
