// Package transport is the http.RoundTripper of clients that have none.
package transport

import (
	"net/http"
	"sync"
)

// InFlight limits the concurrent requests of a client.
const InFlight = 20

// Default returns http.DefaultTransport as it suits InFlight requests: it keeps two
// idle connections per host and would close the others after each request.
var Default = sync.OnceValue(func() http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return http.DefaultTransport
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = InFlight
	t.MaxResponseHeaderBytes = 1 << 20 // by default 10 MB, of each try
	return t
})
