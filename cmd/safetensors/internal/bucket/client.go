package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// stall is the longest time for which a connection may receive nothing. It is long because S3 takes
// minutes to complete an upload, and perhaps to store a part.
var stall = 5 * time.Minute

const (
	longestAnswer  = 8 << 20 // largest answer in bytes that is not the body of an object: a thousand keys of a list
	longestRefusal = 64 << 10
)

// connections returns the settings of connections for clients. Credentials are meant for the
// scheme, the host and the port to which they are sent, so no redirect is followed.
func connections() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithReadTimeout(stall).WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = 32  // as many as there are concurrent requests
		t.DisableCompression = true // a small compressed answer could expand to a very large one
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if r.Response != nil { // the SDK's own client would follow the redirect
				return nil, redirected{}
			}
			return http.ProxyFromEnvironment(r)
		}
	})
}

// A redirected is the error of a redirect. It tells Amazon's clients that another try is useless.
type redirected struct{}

func (redirected) Error() string        { return "the answer is a redirect" }
func (redirected) RetryableError() bool { return false }

// newClient returns a client that returns redirects to its caller, and limits the size of answers.
func newClient(from *awshttp.BuildableClient) *http.Client {
	c := from.Freeze().(*http.Client)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Transport = bounded{c.Transport}
	return c
}

// A discreet client returns errors without the URL, which may contain a signature.
type discreet struct{ *http.Client }

func (d discreet) Do(r *http.Request) (*http.Response, error) {
	resp, err := d.Client.Do(r)
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	return resp, err
}

// A bounded transport reads every answer into memory, except the body of an object, and limits its
// size. It removes credentials from the text of refusals.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	object := r.Method == http.MethodGet && (r.Header.Get("Range") != "" || hasSpelled(r.Header, "x-ms-range"))
	refused := resp.StatusCode >= 300
	if object && !refused {
		return resp, nil
	}
	defer resp.Body.Close()
	limit := longestAnswer
	if refused {
		limit = longestRefusal
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, int64(limit)+1))
	switch {
	case refused && (err != nil || len(body) > limit):
		body = nil // the status suffices
	case refused:
		body = []byte(secrets(r).Replace(string(body)))
	case err != nil:
		return nil, err
	case len(body) > limit:
		return nil, fmt.Errorf("the answer is longer than %d MiB", limit>>20)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

var secretHeader = lazyregexp.New(`(?i)^authorization$|token$|^x-identity-header$`)

// secrets returns a Replacer that removes the credentials of a request from a text.
func secrets(r *http.Request) *strings.Replacer {
	var pairs []string
	hide := func(text string) {
		if len(text) >= 8 { // a shorter text is not a secret
			pairs = append(pairs, text, "…")
		}
	}
	for name, values := range r.Header {
		if secretHeader().MatchString(name) {
			for _, field := range strings.FieldsFunc(values[0], func(c rune) bool { return strings.ContainsRune(" ,:=", c) }) {
				hide(field)
			}
		}
	}
	signature := r.URL.Query().Get("sig")
	hide(signature)
	hide(url.QueryEscape(signature))
	return strings.NewReplacer(pairs...)
}

// hasSpelled reports whether a header has a name in exactly this spelling. Azure's client writes
// names of headers in lower case.
func hasSpelled(header map[string][]string, name string) bool { return header[name] != nil }

const (
	tries        = 5                // number of tries of a request
	longestPause = 20 * time.Second // longest pause, unless the store asks for more
	longestAsked = time.Minute      // longest pause that a store can ask for
)

// firstPause is the pause before the second try. Each later pause is twice as long.
var firstPause = time.Second / 4

// busy are the statuses after which another try may succeed.
var busy = []int{
	http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// pause returns the time to wait after some failed tries. answer is the header of the last answer,
// which may ask for a longer pause. Up to half of the pause is random, so that clients that failed
// at the same time retry at different times.
func pause(failed int, answer http.Header) time.Duration {
	longest := min(longestPause, firstPause<<min(failed-1, 7))
	return max(longest/2+rand.N(longest/2), min(retryAfter(answer), longestAsked))
}

// retryAfter returns the wait that a header Retry-After specifies, in seconds or as a date.
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
