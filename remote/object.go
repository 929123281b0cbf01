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

// An object is a file on a server. Its ReadAt and ReadRanges may be called concurrently.
type object struct {
	*session
	url      *url.URL
	size     int64                  // in bytes, or -1 before the first answer
	answer   http.Header            // header of the first answer
	most     int64                  // largest number of bytes to accept if the first answer is the whole file
	noRanges bool                   // whether requests ask for the whole file instead of a range; then ReadAt and ReadRanges fail
	pinned   place                  // place of the first answer, which later answers must match
	found    atomic.Pointer[place]  // place of the last answer, which the next request goes to; nil stands for url
	head     atomic.Pointer[[]byte] // the first bytes of the file, or nil when they are no longer needed
	merges   bool                   // whether reads may be merged: false while the header of a safetensors file is read
	reads    queue                  // reads that wait for a request
}

// firstRead is the number of bytes that the first request asks for: the header length and a
// header of 100,000 bytes.
const firstRead = 8 + 100_000

// newObject requests the start of a file, with a range that may reach beyond its end (RFC
// 9110, section 14.1.2). If the server answers 416 to that, newObject requests the whole file.
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
	o.head.CompareAndSwap(nil, &head) // head is already set if the answer was the whole file
	return o, nil
}

// whole returns the content of the file if the first answer held all of it, otherwise nil.
func (o *object) whole() []byte {
	if head := o.head.Load(); head != nil && int64(len(*head)) == o.size {
		return *head
	}
	return nil
}

// opened records that NewFile has read the header. From then on, reads are merged.
func (o *object) opened() {
	if o.whole() == nil {
		o.head.Store(nil)
	}
	o.merges = true
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
	case !o.merges: // the rest of a header takes one request, whatever its length
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
	<-w.done // another request may have taken w
	return w.err
}

var errAbandoned = errors.New("the request was abandoned")

// serve sends one request for a waiting read and the reads near it. It sends nothing if another
// request has taken that read. At the end it frees the slot that its caller has acquired. If the
// transport panics, every read in the request fails with errAbandoned.
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
// bytes at its offset, with few requests that run concurrently. It merges ranges that
// are in increasing order and do not overlap. The memory it needs does not grow with
// the number of ranges.
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
		o.slots <- struct{}{} // waits before merge makes the next list, so that only lists in flight take memory
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
