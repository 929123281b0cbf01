package remote

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
)

// fetchNow is fetch for a caller that holds no slot.
func (o *object) fetchNow(parts []part) error {
	o.slots <- struct{}{}
	defer func() { <-o.slots }()
	return o.fetch(parts)
}

// fetch fills parts, which are in increasing order and do not overlap. It
// requests the range that they span, and the rest of it after a failure. The
// caller holds a slot.
func (o *object) fetch(parts []part) error {
	s := &sink{parts: parts, pos: parts[0].off}
	switch {
	case o.size >= 0 && s.end() > o.size:
		return io.ErrUnexpectedEOF
	case o.open && o.head != nil: // head is the whole file
		for _, p := range parts {
			copy(p.dst, o.head[p.off:])
		}
		return nil
	}
	at := place{url: o.url}
	err := o.retry(func() (n int64, err error) {
		start := s.pos
		at, err = o.try(s)
		return s.pos - start, err
	})
	if err != nil {
		err = getError(at.url, err)
	}
	return err
}

// try requests the bytes that s lacks. It returns the place of the answer.
func (o *object) try(s *sink) (place, error) {
	x := o.exchange()
	defer x.end()
	s.pos = max(s.pos, s.parts[0].off) // skip the rest of a gap
	first, last := s.pos, s.end()-1
	resp, at, want, err := o.ask(x.ctx, first, last)
	if err == nil {
		defer resp.Body.Close()
		err = o.receive(s, resp, x.body(resp), at, want)
	}
	if err != nil {
		err = fmt.Errorf("bytes %d-%d: %w", first, last, x.cause(err))
	}
	return at, err
}

// receive checks an answer and reads the bytes that s lacks from it. The first
// answer sets the size of the file and pins its version.
func (o *object) receive(s *sink, resp *http.Response, body io.Reader, at, want place) error {
	opening := o.size < 0
	switch {
	case opening && resp.StatusCode == http.StatusOK:
		return o.receiveAll(resp, body)
	case opening && resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return unsatisfiableError(resp)
	}
	r, err := o.check(resp, at, want, s.pos, s.end()-1)
	if err != nil {
		return err
	}
	if opening {
		o.pinned = at
		o.size = r.size
		o.head = o.head[:min(int64(len(o.head)), r.size)]
		s.parts[0].dst = o.head
	}
	if at.url != want.url { // not where it was found before
		at.linked = "" // only redirects tell it
		o.found.Store(&at)
	}
	if err := s.readFrom(io.LimitReader(body, r.last+1-r.first)); err != nil {
		return &temporary{error: fmt.Errorf("%w after %d bytes", err, s.pos-r.first), short: s.pos > r.last}
	}
	return nil
}

// receiveAll reads a first answer that ignores the range and holds the whole
// file. It accepts a short file only, and leaves a longer body unread.
func (o *object) receiveAll(resp *http.Response, body io.Reader) error {
	if resp.ContentLength > firstRead {
		return errNoRanges
	}
	if err := checkEncoding(resp); err != nil {
		return err
	}
	all, err := io.ReadAll(io.LimitReader(body, firstRead+1))
	if err != nil {
		return err
	}
	if len(all) > firstRead {
		return errNoRanges
	}
	o.size, o.head = int64(len(all)), all
	return nil
}

// A sink takes the bytes of a range in order, from one or more answers, and
// keeps the wanted ones.
type sink struct {
	parts []part // those not yet full
	pos   int64  // of the next byte
}

func (s *sink) end() int64 { return s.parts[len(s.parts)-1].end() }

// readFrom reads all that s lacks. If r ends early, the next call continues.
func (s *sink) readFrom(r io.Reader) error {
	b := bufio.NewReaderSize(r, 32<<10) // parts may be small; large ones bypass it
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
