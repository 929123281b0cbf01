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

// fetch fills parts, which are in rising order and do not overlap, with a
// request for the range that they span, and more where that breaks off. The
// caller holds a slot.
func (o *object) fetch(parts []part) error {
	s := &sink{parts: parts, pos: parts[0].off}
	switch {
	case o.size >= 0 && s.end() > o.size:
		return io.ErrUnexpectedEOF
	case o.open && o.head != nil: // it is the whole file
		for _, p := range parts {
			copy(p.dst, o.head[p.off:])
		}
		return nil
	}
	at := place{url: o.url}
	err := o.retry(func() (n int64, err error) {
		begin := s.pos
		at, err = o.try(s)
		return s.pos - begin, err
	})
	if err != nil {
		err = getError(at.url, err)
	}
	return err
}

// try sends a request for what s lacks, and returns where it led to.
func (o *object) try(s *sink) (place, error) {
	x := o.exchange()
	defer x.end()
	s.pos = max(s.pos, s.parts[0].off) // what is left of a gap is not wanted
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

// receive checks the answer to a request for what s lacks, and reads it. The
// first answer tells the size of the file and which version of it to keep to.
func (o *object) receive(s *sink, resp *http.Response, body io.Reader, at, want place) error {
	opening := o.size < 0
	if opening && resp.StatusCode == http.StatusOK {
		return o.receiveAll(s, resp, body)
	}
	if opening && isEmpty(resp) {
		o.setSize(s, 0)
		return nil
	}
	r, err := o.check(resp, at, want, s.pos, s.end()-1)
	if err != nil {
		return err
	}
	if opening {
		o.pinned = at
		o.setSize(s, r.size)
	}
	if at.url != want.url { // not where it was found before
		at.linked = "" // which only redirects tell
		o.found.Store(&at)
	}
	if err := s.readFrom(io.LimitReader(body, r.last+1-r.first)); err != nil {
		return &temporary{error: fmt.Errorf("%w after %d bytes", err, s.pos-r.first)}
	}
	return nil
}

// receiveAll reads an answer that is the whole file, whatever had been asked
// for: that is good enough if the file is short. If it is not, its body is left
// where it is.
func (o *object) receiveAll(s *sink, resp *http.Response, body io.Reader) error {
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
	copy(o.head, all)
	o.setSize(s, int64(len(all)))
	return nil
}

// setSize sets the size of the file, and shortens s, which fills its head.
func (o *object) setSize(s *sink, size int64) {
	o.size = size
	head := &s.parts[0]
	head.dst = head.dst[:min(int64(len(head.dst)), size)]
}

// A sink takes the bytes of a range in order, from one answer or several, and
// keeps those that are wanted.
type sink struct {
	parts []part // those that are not full yet
	pos   int64  // of the next byte
}

func (s *sink) end() int64 { return s.parts[len(s.parts)-1].end() }

// readFrom reads all that s lacks. Where r ends before, the next call goes on.
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
