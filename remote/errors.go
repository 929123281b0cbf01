package remote

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"time"
)

// ErrChanged reports that the remote file changed after it was opened.
var ErrChanged = errors.New("the file has changed since it was opened")

var errNoRanges = errors.New("the server does not support range requests: it answered with the whole file")

// prefixed puts the prefix of the library before an error that leaves this
// package. It returns nil for nil.
func prefixed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("safetensors: %w", err)
}

// bare takes the prefix from an error of package safetensors, which puts it
// around every error that it returns.
func bare(err error) error { return errors.Unwrap(err) }

// openError is the error of opening the file at u.
func openError(u *url.URL, err error) error {
	if get, ok := err.(*fs.PathError); ok && get.Path == redact(u) {
		err = get.Err // the URL once is enough
	}
	return &fs.PathError{Op: "open", Path: redact(u), Err: err}
}

// getError is the error of getting a file, or a part of it, from u.
func getError(u *url.URL, err error) error {
	return &fs.PathError{Op: http.MethodGet, Path: redact(u), Err: err}
}

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
