package remote

import (
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// An object is a file on a server, as an io.ReaderAt for concurrent use.
type object struct {
	*session
	url      *url.URL
	size     int64                  // -1 until the first answer
	answer   http.Header            // the first
	most     int64                  // of the bytes in a first answer that is the whole file
	noRanges bool                   // the server does not support range requests
	pinned   place                  // of the first answer, which later ones must match
	found    atomic.Pointer[place]  // of the last answer: where to ask next; nil: at url
	head     atomic.Pointer[[]byte] // the first bytes, until they are no longer of use
	open     bool                   // the header has been read
	reads    queue
}

// firstRead is the length of the longest range that a first request asks for: the
// header length and a header of 100,000 bytes.
const firstRead = 8 + 100_000

// newObject requests the start of a file, with a range that may reach beyond the end (RFC
// 9110, section 14.1.2). A server that answers 416 to that is asked for the whole file.
func newObject(s *session, u *url.URL) (*object, error) {
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	o := &object{session: s, url: u, size: -1, most: firstRead}
	head := make([]byte, firstRead)
	err := o.fetch([]part{{0, head}})
	if o.noRanges {
		err = o.fetch([]part{{0, head}})
		o.noRanges = false
	}
	if err != nil {
		return o, err
	}
	head = head[:min(firstRead, o.size)]
	o.head.CompareAndSwap(nil, &head) // it is set if the answer was the whole file
	return o, nil
}

// whole returns the content of a file that is short enough for the first answer, else
// nil.
func (o *object) whole() []byte {
	if head := o.head.Load(); head != nil && int64(len(*head)) == o.size {
		return *head
	}
	return nil
}

// opened is called once NewFile has read the header.
func (o *object) opened() {
	if o.whole() == nil {
		o.head.Store(nil)
	}
	o.open = true
}

// ReadAt implements io.ReaderAt.
func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if o.noRanges {
		return 0, openError(o.url, errNoRanges)
	}
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	want := p[:max(0, min(int64(len(p)), o.size-off))]
	n := 0
	if head := o.head.Load(); head != nil && off < int64(len(*head)) {
		n = copy(want, (*head)[off:])
	} else if o.whole() == nil {
		o.head.Store(nil)
	}
	if err := o.read(part{off + int64(n), want[n:]}); err != nil {
		return n, err
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(p), nil
}

// read fills a part, with its own request or together with other waiting reads.
func (o *object) read(p part) error {
	switch {
	case len(p.dst) == 0:
		return nil
	case !o.open: // the rest of a header: one request, whatever its length
		o.slots <- struct{}{}
		defer func() { <-o.slots }()
		return o.fetch([]part{p})
	case len(p.dst) > maxSpan:
		return o.ReadRanges(func(yield func(int64, []byte) bool) { yield(p.off, p.dst) })
	}
	w := &pending{part: p, done: make(chan struct{})}
	o.reads.add(w)
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
	taken := o.reads.take(w)
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

var _ safetensors.RangeReader = (*object)(nil)

// ReadRanges implements safetensors.RangeReader: it fills each slice with the
// bytes at its offset, with few, concurrent requests. It merges ranges that are
// in increasing order and do not overlap. Its memory does not grow with the
// number of ranges.
func (o *object) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	if o.noRanges {
		return openError(o.url, errNoRanges)
	}
	if whole := o.whole(); whole != nil {
		for off, dst := range ranges {
			if off+int64(len(dst)) > o.size {
				return io.ErrUnexpectedEOF
			}
			copy(dst, whole[off:])
		}
		return nil
	}
	var (
		all    sync.WaitGroup
		failed atomic.Pointer[error]
	)
	for parts := range merge(ranges) {
		o.slots <- struct{}{} // before the next list is made: lists exist only in flight
		if failed.Load() != nil {
			<-o.slots
			break
		}
		all.Add(1)
		go parallel.Guarded(func() error { return o.fetch(parts) }, func(err error) {
			if err != nil {
				failed.CompareAndSwap(nil, &err)
			}
			<-o.slots
			all.Done()
		})
	}
	all.Wait()
	if err := failed.Load(); err != nil {
		return parallel.Rethrow(*err)
	}
	return nil
}
