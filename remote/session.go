package remote

import (
	"context"
	"net/http"
	"sync/atomic"
)

// A session holds what all requests of one Open share: the client, the header, and the
// limit on requests in flight.
type session struct {
	pace
	ctx    context.Context // the context given to Open; it also ends later reads
	http   http.Client     // a copy of the caller's client
	header http.Header     // sent to the host of the opened URL only
	slots  chan struct{}   // holds an element for each request in flight
	served atomic.Int64    // number of tries that succeeded or received leastTry bytes
}
