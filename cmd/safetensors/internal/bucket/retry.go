package bucket

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	tries        = 5                // of a request, and of a body
	longestPause = 20 * time.Second // unless the store asks for more
	longestAsked = time.Minute      // if it does
)

// firstPause is that before the second try; each later one is twice as long.
var firstPause = time.Second / 4

// busy are the statuses after which another try may succeed.
var busy = []int{
	http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// pause returns how long to wait after some tries, the last of which failed with an answer
// that may ask for more. Clients that failed together come back apart.
func pause(failed int, answer http.Header) time.Duration {
	longest := longestPause
	if failed < 8 {
		longest = min(longest, firstPause<<(failed-1))
	}
	return max(longest/2+rand.N(longest/2), min(retryAfter(answer), longestAsked))
}

// retryAfter returns the wait in a header Retry-After, in seconds or until a date.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if n, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(n) * time.Second
	}
	if date, err := http.ParseTime(text); err == nil {
		return time.Until(date)
	}
	return 0
}

// headerOf returns the header of the answer that made an error of Amazon's client.
func headerOf(err error) http.Header {
	var answer *smithyhttp.ResponseError
	if errors.As(err, &answer) && answer.Response != nil {
		return answer.Response.Header
	}
	return nil
}

// wait waits for d and reports whether ctx has not ended. Tests do not wait.
var wait = func(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// A RetryTransport sends a request that has no body up to five times, for clients that send
// it once.
type RetryTransport struct{ http.RoundTripper }

// RoundTrip sends a request until it is answered, and not by a server that is busy.
func (t RetryTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	for failed := 1; ; failed++ {
		resp, err := t.RoundTripper.RoundTrip(r)
		if failed == tries || err == nil && !slices.Contains(busy, resp.StatusCode) {
			return resp, err
		}
		var header http.Header
		if err == nil {
			header = resp.Header
			io.Copy(io.Discard, io.LimitReader(resp.Body, longestRefusal)) // keeps the connection
			resp.Body.Close()
		}
		if !wait(r.Context(), pause(failed, header)) {
			return nil, context.Cause(r.Context())
		}
	}
}
