// Package transport has the http.RoundTripper for clients that have none of their own, and the
// error for an unexpected status.
package transport

import (
	"net/http"
	"net/url"
	"sync"
)

// A StatusError reports an answer with an unexpected status. A package that knows the server
// replaces Text.
type StatusError struct {
	Status  int
	Code    string   // X-Error-Code, with which the Hugging Face Hub explains a status, or ""
	Message string   // X-Error-Message, which belongs to Code
	URL     *url.URL // URL of the request that was answered, after all redirects; it may contain secrets
	Text    string   // text of the error, for people
}

func (e *StatusError) Error() string { return e.Text }

// InFlight is the largest number of concurrent requests of a client.
const InFlight = 20

// Default returns a copy of http.DefaultTransport that keeps InFlight idle connections per host.
// http.DefaultTransport itself keeps two, and would close the others after each request. All
// callers share the copy, and must not modify it.
var Default = sync.OnceValue(func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = InFlight
	t.MaxResponseHeaderBytes = 1 << 20 // the default lets a server send 10 MB of headers in every try
	return t
})
