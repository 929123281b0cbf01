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

// openError is the error of opening the file at u; nil for nil.
func openError(u *url.URL, err error) error { return prefix.OpenError(redact(u), err) }

// getError is the error of a GET request for u; nil for nil.
func getError(u *url.URL, err error) error {
	if err == nil {
		return nil
	}
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
