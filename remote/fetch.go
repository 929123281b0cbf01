package remote

import (
	"bufio"
	"fmt"
	"io"
	"net/http"

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// fetch fills parts, which are in increasing order and do not overlap. It requests the range that
// they span, and after a failure the rest of that range. The caller holds a slot of the session.
func (o *object) fetch(parts []part) error {
	s := &sink{parts: parts, pos: parts[0].off}
	if o.size >= 0 && s.end() > o.size {
		return io.ErrUnexpectedEOF
	}
	asked := place{url: o.url}
	err := o.retry(new(int), func() (int64, error) {
		x := o.exchange()
		defer x.Close()
		s.pos = max(s.pos, s.parts[0].off) // skips the rest of a gap, which no part needs
		start, end := s.pos, s.end()
		resp, at, want, err := o.ask(x, start, end-1)
		if err == nil {
			err = o.receive(s, resp, at, want)
		}
		if asked, err = at, x.cause(err); err != nil && !o.noRanges && o.size >= 0 {
			err = fmt.Errorf("bytes %d-%d: %w", start, end-1, err)
		}
		return s.pos - start, err
	})
	return getError(asked.url, err)
}

// ask requests the bytes from first to last, both inclusive. It returns the answer, the place that
// the answer came from (at), and the place that it must match (want).
//
// It sends the request to the place where the file was found before. If redirects led there and the
// request is now refused, because signed URLs expire, it sends the request to the original URL.
func (o *object) ask(x *exchange, first, last int64) (resp *http.Response, at, want place, err error) {
	header := http.Header{"Accept-Encoding": {"identity"}} // with another encoding, a range would count encoded bytes
	if !o.noRanges {
		header["Range"] = []string{fmt.Sprintf("bytes=%d-%d", first, last)}
	}
	if found := o.found.Load(); found != nil {
		resp, at, err = o.get(x, *found, found.preconditions(header))
		redirected := found.url != o.url
		if !redirected || err == nil && !refused(resp.StatusCode) {
			return resp, at, *found, err
		}
		o.found.CompareAndSwap(found, nil)
		if err != nil {
			return resp, at, *found, err
		}
		x.body.Close()
	}
	resp, at, err = o.get(x, place{url: o.url, trusted: true}, header)
	return resp, at, o.pinned, err
}

// receive checks an answer, and reads from it the bytes that s still lacks. The first answer sets
// the size of the file and pins its version.
func (o *object) receive(s *sink, resp *http.Response, at, want place) error {
	opening := o.size < 0
	switch {
	case opening && resp.StatusCode == http.StatusOK:
		o.pinned = at
		return o.receiveAll(resp)
	case opening && !o.noRanges && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		o.noRanges = true // newObject now requests the whole file
		return statusError(resp, http.StatusPartialContent)
	}
	r, err := o.check(resp, at, want, s.pos, s.end()-1)
	if err != nil {
		return err
	}
	if opening {
		o.pinned = at
		o.size, o.answer = r.size, resp.Header
		p := &s.parts[0]
		p.dst = p.dst[:min(int64(len(p.dst)), o.size)]
	}
	if at.url != want.url { // the file has moved
		at.linked = "" // later answers come from this place without a redirect, and only redirects have X-Linked-Etag
		o.found.Store(&at)
	}
	if err := s.readFrom(io.LimitReader(resp.Body, r.last+1-r.first)); err != nil {
		return &temporary{error: fmt.Errorf("%w after %s", err, shapetext.Count(s.pos-r.first, "byte")), short: s.pos > r.last}
	}
	return nil
}

// receiveAll reads a first answer that contains the whole file. It accepts a body of at most o.most
// bytes, and leaves a longer body unread.
func (o *object) receiveAll(resp *http.Response) error {
	if err := checkEncoding(resp); err != nil {
		return err
	}
	o.answer = resp.Header
	if resp.ContentLength > o.most {
		o.size = resp.ContentLength
		return errNoRanges
	}
	all, err := io.ReadAll(io.LimitReader(resp.Body, o.most+1))
	if err != nil {
		return err
	}
	if int64(len(all)) > o.most {
		return errNoRanges
	}
	o.size = int64(len(all))
	o.head.Store(&all)
	return nil
}

// A sink takes the bytes of a range in order, from one or more answers. It stores the bytes that
// belong to its parts, and drops the others.
type sink struct {
	parts []part // the parts that are not full yet
	pos   int64  // offset of the next byte
}

// end returns the offset in the file at which the last part ends.
func (s *sink) end() int64 { return s.parts[len(s.parts)-1].end() }

// readFrom reads from r everything that s lacks. If r ends early, the next call continues.
func (s *sink) readFrom(r io.Reader) error {
	b := bufio.NewReaderSize(r, 32<<10) // parts may be small; large parts bypass the buffer
	for len(s.parts) > 0 {
		p := s.parts[0]
		n, err := b.Discard(int(max(p.off-s.pos, 0)))
		s.pos += int64(n)
		if err == nil {
			n, err = io.ReadFull(b, p.dst[s.pos-p.off:])
			s.pos += int64(n)
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		s.parts = s.parts[1:]
	}
	return nil
}
