package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/transport"
)

// preconditions returns a copy of header with the condition that the file has not changed since an
// answer came from p. If-Match takes strong validators only (RFC 9110, section 13.1.1). If-Range is
// not used, because a server would answer with the whole new file.
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

// strong reports whether an ETag is a strong validator. Weak validators start with W/.
func strong(etag string) bool { return strings.HasPrefix(etag, `"`) }

// differs returns the evidence that the answers at p and q are of different files, or "" if there
// is no evidence.
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

// ErrChanged reports that the remote file changed after it was opened.
var ErrChanged = errors.New("the file has changed since it was opened")

var errNoRanges error = prefix.Unsupported{
	Err: errors.New("the server does not support range requests: it answered with the whole file"),
}

// check validates the answer to a request for the bytes from first to last, both inclusive. If the
// server does not support range requests, the request was for the whole file. at is the place that
// the answer came from, and want is the place that it must match. check returns the range that the
// answer contains, which may end before last (RFC 9110, section 15.3.7).
func (o *object) check(resp *http.Response, at, want place, first, last int64) (contentRange, error) {
	opened, expected := o.size >= 0, http.StatusPartialContent
	if o.noRanges {
		expected = http.StatusOK
	}
	fine := resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusOK
	if diff := want.differs(at); fine && diff != "" {
		return contentRange{}, fmt.Errorf("%w: %s", ErrChanged, diff)
	}
	switch resp.StatusCode {
	case expected:
	case http.StatusOK:
		return contentRange{}, errNoRanges
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		if opened {
			return contentRange{}, fmt.Errorf("%w: status %s", ErrChanged, statusText(resp))
		}
		fallthrough
	default:
		return contentRange{}, statusError(resp, expected)
	}
	if err := checkEncoding(resp); err != nil {
		return contentRange{}, err
	}
	text := resp.Header.Get("Content-Range")
	r, ok := parseContentRange(text)
	if o.noRanges {
		r, ok = contentRange{0, math.MaxInt64 - 1, resp.ContentLength}, true
	}
	if ok && opened && r.size >= 0 && r.size != o.size {
		return r, fmt.Errorf("%w: it has %s, had %d", ErrChanged, shapetext.Count(r.size, "byte"), o.size)
	}
	if o.noRanges {
		return r, nil
	}
	if !ok || r.first != first || r.last < first || r.last > last || !opened && r.size < 0 {
		return r, fmt.Errorf("answered with Content-Range %s, expected bytes %d-%d and the size", quote(text), first, last)
	}
	if n := r.last + 1 - r.first; resp.ContentLength >= 0 && resp.ContentLength != n {
		return r, fmt.Errorf("answered with Content-Length %d, expected the %s of Content-Range %s", resp.ContentLength, shapetext.Count(n, "byte"), quote(text))
	}
	return r, nil
}

// checkEncoding refuses encoded content, since the requests of this package accept none.
func checkEncoding(resp *http.Response) error {
	if encoding := resp.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return fmt.Errorf("answered with Content-Encoding %s, expected none", quote(encoding))
	}
	return nil
}

// A contentRange is the value of a Content-Range header (RFC 9110, section
// 14.4).
type contentRange struct {
	first, last int64
	size        int64 // -1 if unknown
}

// parseContentRange parses "bytes FIRST-LAST/SIZE", where SIZE may be "*".
func parseContentRange(text string) (r contentRange, ok bool) {
	unit, rest, _ := strings.Cut(text, " ")
	first, rest, _ := strings.Cut(rest, "-")
	last, size, _ := strings.Cut(rest, "/")
	r = contentRange{number(first), number(last), number(size)}
	ok = strings.EqualFold(unit, "bytes") && r.first >= 0 && r.first <= r.last && (size == "*" || r.last < r.size)
	return r, ok
}

// number returns the value of a text of 1 to 18 digits, and -1 for any other text.
func number(digits string) int64 {
	if digits == "" || len(digits) > 18 || strings.Trim(digits, "0123456789") != "" {
		return -1
	}
	n, _ := strconv.ParseInt(digits, 10, 64) // 18 digits always fit
	return n
}

// refused reports whether a status means that a URL no longer works, for example because it is a
// signed URL that has expired.
func refused(status int) bool {
	return status >= 400 && !retryable(status) &&
		status != http.StatusPreconditionFailed && status != http.StatusRequestedRangeNotSatisfiable
}

// statusText returns the status of an answer. It quotes an unusual reason phrase.
func statusText(resp *http.Response) string {
	usual := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.Status == usual {
		return usual
	}
	return quote(resp.Status)
}

// statusError returns the error for an answer whose status is not the expected one. It names the
// expected status only if the answer itself reports no error.
func statusError(resp *http.Response, expected int) error {
	status := &transport.StatusError{
		Status: resp.StatusCode, Code: resp.Header.Get("X-Error-Code"), Message: resp.Header.Get("X-Error-Message"),
		Text: "status " + statusText(resp),
	}
	if resp.Request != nil {
		status.URL = resp.Request.URL
	}
	if resp.StatusCode < 400 {
		status.Text += fmt.Sprintf(", expected %d %s", expected, http.StatusText(expected))
	}
	if status.Message != "" {
		status.Text += fmt.Sprintf(" (%s)", quote(status.Message))
	}
	var err error = status
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", err, fs.ErrPermission)
	}
	if retryable(resp.StatusCode) {
		busy := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
		return &temporary{error: err, after: askedPause(resp, time.Now()), busy: busy}
	}
	return err
}
