package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/gosafetensors/safetensors/internal/prefix"
)

// ErrChanged reports that the remote file changed after it was opened.
var ErrChanged = errors.New("the file has changed since it was opened")

var errNoRanges = errors.New("the server does not support range requests: it answered with the whole file")

// prefixed puts the library's prefix before an error that leaves this package.
func prefixed(err error) error { return prefix.Add(err) }

// bare takes it from an error of package safetensors.
func bare(err error) error { return prefix.Strip(err) }

// openError is the error of opening the file at u.
func openError(u *url.URL, err error) error {
	if get, ok := err.(*fs.PathError); ok && get.Path == redact(u) {
		err = get.Err // the URL once is enough
	}
	return &fs.PathError{Op: "open", Path: redact(u), Err: err}
}

// getError is the error of a GET request for u.
func getError(u *url.URL, err error) error {
	return &fs.PathError{Op: http.MethodGet, Path: redact(u), Err: err}
}

// redact returns a URL for an error, without user information and query: in a
// signed URL, the query is the key to the file.
func redact(u *url.URL) string {
	text := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if len(text) > maxURL {
		text = text[:maxURL] + "…" // ASCII, as String escapes all else
	}
	return text
}

// Limits of the text in an error that a server chooses.
const (
	maxQuote = 200
	maxURL   = 1000
)

// quote quotes the text of a server, or the start of a long one.
func quote(text string) string { return fmt.Sprintf("%.*q", maxQuote, text) }

// statusText returns the status of an answer. It quotes an unusual reason phrase.
func statusText(resp *http.Response) string {
	usual := fmt.Sprintf("%d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	if resp.Status == usual {
		return usual
	}
	return quote(resp.Status)
}

// statusError is the error of an answer whose status is not the expected one.
func statusError(resp *http.Response, expected int) error {
	err := fmt.Errorf("status %s, expected %d %s", statusText(resp), expected, http.StatusText(expected))
	if message := resp.Header.Get("X-Error-Message"); message != "" { // of the Hugging Face Hub
		err = fmt.Errorf("%w (%s)", err, quote(message))
	}
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", err, fs.ErrPermission)
	}
	if retryable(resp.StatusCode) {
		busy := resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable
		return &temporary{error: err, after: askedPause(resp.Header, time.Now()), busy: busy}
	}
	return err
}

// A foreign error comes from net/http. Its text may hold text of the server: a
// malformed status or header line, the names in a certificate.
type foreign struct{ error }

func (f *foreign) Error() string {
	text := f.error.Error()
	if len(text) > maxQuote || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quote(text)
	}
	return text
}

func (f *foreign) Unwrap() error { return f.error }
