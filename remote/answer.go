package remote

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

// ask requests the bytes from first to last. It returns the answer, its place,
// and the place it must match.
//
// It asks where the file was found before. If redirects led there and the
// request is now refused, as signed URLs expire, it asks the original URL again.
func (o *object) ask(ctx context.Context, first, last int64) (resp *http.Response, at, want place, err error) {
	header := http.Header{
		"Range":           {fmt.Sprintf("bytes=%d-%d", first, last)},
		"Accept-Encoding": {"identity"}, // ranges are of the encoded bytes
	}
	found := o.found.Load()
	if found == nil {
		resp, at, err = o.get(ctx, place{url: o.url, trusted: true}, header)
		return resp, at, o.pinned, err
	}
	resp, at, err = o.get(ctx, *found, found.preconditions(header))
	redirected := found.url != o.url
	if !redirected || err == nil && !refused(resp.StatusCode) {
		return resp, at, *found, err
	}
	o.found.CompareAndSwap(found, nil)
	if err != nil {
		return resp, at, *found, err
	}
	resp.Body.Close()
	resp, at, err = o.get(ctx, place{url: o.url, trusted: true}, header)
	return resp, at, o.pinned, err
}

// refused reports whether a status means that a URL no longer works.
func refused(status int) bool {
	switch status {
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		return false
	}
	return status >= 400 && !retryable(status)
}

// preconditions returns header with the condition that the file is still the one
// found at p. If-Match takes strong validators only (RFC 9110, section 13.1.1).
// If-Range would not do: the server would answer with the whole new file.
func (p place) preconditions(header http.Header) http.Header {
	header = header.Clone()
	switch {
	case strong(p.etag):
		header.Set("If-Match", p.etag)
	case p.modified != "":
		header.Set("If-Unmodified-Since", p.modified)
	}
	return header
}

func strong(etag string) bool { return strings.HasPrefix(etag, `"`) }

// differs returns the evidence that q is another file than p, "" if there is
// none.
func (p place) differs(q place) string {
	name, a, b := "Last-Modified", p.modified, q.modified
	switch {
	case p.linked != "" && q.linked != "":
		name, a, b = "X-Linked-Etag", p.linked, q.linked
	case p.etag != "" && q.etag != "" && (strong(p.etag) || p.etag != q.etag):
		name, a, b = "ETag", p.etag, q.etag
	}
	if a == "" || b == "" || a == b {
		return ""
	}
	return fmt.Sprintf("%s is %#.*q, was %#.*q", name, maxQuote, b, maxQuote, a)
}

// check validates an answer to a request for the bytes from first to last of the
// file found at want. It returns the range in the answer, which may end before
// last (RFC 9110, section 15.3.7).
func (o *object) check(resp *http.Response, at, want place, first, last int64) (contentRange, error) {
	opened := o.size >= 0
	fine := resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusOK
	if diff := want.differs(at); fine && diff != "" {
		return contentRange{}, fmt.Errorf("%w: %s", ErrChanged, diff)
	}
	switch resp.StatusCode {
	case http.StatusPartialContent:
	case http.StatusOK:
		return contentRange{}, errNoRanges
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		if opened {
			return contentRange{}, fmt.Errorf("%w: status %s", ErrChanged, statusText(resp))
		}
		fallthrough
	default:
		return contentRange{}, statusError(resp, http.StatusPartialContent)
	}
	if err := checkEncoding(resp); err != nil {
		return contentRange{}, err
	}
	text := resp.Header.Get("Content-Range")
	r, ok := parseContentRange(text)
	if ok && opened && r.size >= 0 && r.size != o.size {
		return r, fmt.Errorf("%w: it has %d bytes, had %d", ErrChanged, r.size, o.size)
	}
	if !ok || r.first != first || r.last < first || r.last > last || !opened && r.size < 0 {
		return r, fmt.Errorf("answered with Content-Range %s, expected bytes %d-%d and the size", quote(text), first, last)
	}
	if n := r.last + 1 - r.first; resp.ContentLength >= 0 && resp.ContentLength != n {
		return r, fmt.Errorf("answered with Content-Length %d, expected the %d bytes of Content-Range %s", resp.ContentLength, n, quote(text))
	}
	return r, nil
}

// checkEncoding refuses encoded content, which nobody asked for.
func checkEncoding(resp *http.Response) error {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return fmt.Errorf("answered with Content-Encoding %s, expected none", quote(encoding))
	}
	return nil
}

// A contentRange is the value of a Content-Range header (RFC 9110, section
// 14.4).
type contentRange struct {
	first, last int64 // -1 if the range cannot be satisfied
	size        int64 // -1 if unknown
}

var contentRangeSyntax = regexp.MustCompile(`^(?i:bytes) (?:([0-9]{1,18})-([0-9]{1,18})|\*)/(?:([0-9]{1,18})|\*)$`)

func parseContentRange(text string) (r contentRange, ok bool) {
	m := contentRangeSyntax.FindStringSubmatch(text)
	if m == nil {
		return r, false
	}
	r = contentRange{number(m[1]), number(m[2]), number(m[3])}
	return r, r.first <= r.last && (r.size < 0 || r.last < r.size)
}

// number returns the value of at most 18 digits, -1 for none.
func number(digits string) int64 {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// An unsatisfiable error reports an answer of 416 to the first request.
type unsatisfiable struct {
	error
	size int64 // of the file (RFC 9110, section 15.5.17); -1 if unknown
}

func (u *unsatisfiable) Unwrap() error { return u.error }

func unsatisfiableError(resp *http.Response) error {
	size := int64(-1)
	if r, ok := parseContentRange(resp.Header.Get("Content-Range")); ok {
		size = r.size
	}
	return &unsatisfiable{statusError(resp, http.StatusPartialContent), size}
}
