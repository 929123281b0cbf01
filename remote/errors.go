package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ErrChanged is the error of reading a file that is not the one any more that
// was opened.
var ErrChanged = errors.New("the file has changed since it was opened")

var errNoRanges = errors.New("the server does not support range requests: it answered with the whole file")

const errorPrefix = "safetensors: "

// openError is the error of opening the file at u.
func openError(u *url.URL, err error) error {
	if get, ok := err.(*fs.PathError); ok && get.Path == redact(u) {
		err = get.Err // the URL once is enough
	}
	return fmt.Errorf(errorPrefix+"%w", &fs.PathError{Op: "open", Path: redact(u), Err: bareError{err}})
}

// getError is the error of getting a file, or a part of it, from u.
func getError(u *url.URL, err error) error {
	return &fs.PathError{Op: http.MethodGet, Path: redact(u), Err: err}
}

// A bareError lacks the prefix, for use in an error that has it.
type bareError struct{ error }

func (e bareError) Error() string { return strings.TrimPrefix(e.error.Error(), errorPrefix) }
func (e bareError) Unwrap() error { return e.error }

// statusError returns the error of an answer with another status than the one
// expected.
func statusError(resp *http.Response, expected int) error {
	err := fmt.Errorf("status %s, expected %d %s", resp.Status, expected, http.StatusText(expected))
	if message := resp.Header.Get("X-Error-Message"); message != "" { // of the Hugging Face Hub
		err = fmt.Errorf("%w (%.200q)", err, message)
	}
	switch resp.StatusCode {
	case http.StatusNotFound, http.StatusGone:
		return fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: %w", err, fs.ErrPermission)
	}
	if retryable(resp.StatusCode) {
		return &temporary{err, askedPause(resp.Header, time.Now())}
	}
	return err
}
