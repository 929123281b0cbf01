package remote

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/gosafetensors/safetensors/internal/prefix"
)

// openError returns err as the error of opening the file at u. It returns nil if err is nil.
func openError(u *url.URL, err error) error { return prefix.OpenError(redact(u), err) }

// getError returns err as the error of a GET request for u. It returns nil if err is nil.
func getError(u *url.URL, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: http.MethodGet, Path: redact(u), Err: err}
}

// redact returns a URL as an error may show it: without user information and query, because the
// query of a signed URL gives access to the file.
func redact(u *url.URL) string {
	text := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String()
	if len(text) > maxURL {
		text = text[:maxURL] + "…" // text is ASCII, since String escapes everything else
	}
	return text
}

// These constants limit the text of a server that is shown in an error.
const (
	maxQuote = 200  // largest number of characters of a quoted text
	maxURL   = 1000 // largest number of bytes of a URL
)

// quote quotes a text from a server, and shortens a long text to its start.
func quote(text string) string { return fmt.Sprintf("%.*q", maxQuote, text) }

// A foreign is an error of net/http. Its text may contain text of the server, such as a malformed
// status or header line, or the names in a certificate.
type foreign struct{ error }

func (f *foreign) Error() string {
	text := f.error.Error()
	if len(text) > maxQuote || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quote(text)
	}
	return text
}

func (f *foreign) Unwrap() error { return f.error }
