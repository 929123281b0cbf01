package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// stall is how long a connection may bring nothing. S3 takes minutes to complete an
// upload, and so may a part.
var stall = 5 * time.Minute

const (
	longestAnswer  = 8 << 20 // of what is not the body of an object: a thousand keys of a list
	longestRefusal = 64 << 10
)

// connections returns what clients are made of. What opens a store is for the scheme, the
// host and the port that it is sent to, wherever an answer points: nothing is redirected.
func connections() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithReadTimeout(stall).WithTransportOptions(func(t *http.Transport) {
		t.MaxIdleConnsPerHost = 32  // the concurrent requests
		t.DisableCompression = true // a little gzip is a lot of XML
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if r.Response != nil { // the SDK's own client follows redirects
				return nil, redirected{}
			}
			return http.ProxyFromEnvironment(r)
		}
	})
}

// A redirected error tells Amazon's clients that another try is in vain.
type redirected struct{}

func (redirected) Error() string        { return "the answer is a redirect" }
func (redirected) RetryableError() bool { return false }

// newClient returns a client that gives redirects back and bounds answers.
func newClient(from *awshttp.BuildableClient) *http.Client {
	c := from.Freeze().(*http.Client)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.Transport = bounded{c.Transport}
	return c
}

// A discreet client has no URL in its errors: it may hold a signature.
type discreet struct{ *http.Client }

func (d discreet) Do(r *http.Request) (*http.Response, error) {
	resp, err := d.Client.Do(r)
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	return resp, err
}

// A bounded transport reads every answer but the body of an object. Refusals do not
// repeat what opens the store.
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
		body = nil // the status says enough
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

var secretHeader = regexp.MustCompile(`(?i)^authorization$|token$|^x-identity-header$`)

// secrets replaces what opens the store in a request.
func secrets(r *http.Request) *strings.Replacer {
	var pairs []string
	hide := func(text string) {
		if len(text) >= 8 { // shorter ones are no secrets
			pairs = append(pairs, text, "…")
		}
	}
	for name, values := range r.Header {
		if secretHeader.MatchString(name) {
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

// hasSpelled reports whether a header has a name as Azure's client spells it, in small
// letters.
func hasSpelled(header map[string][]string, name string) bool { return header[name] != nil }

const (
	tries        = 5                // of a request
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
	longest := min(longestPause, firstPause<<min(failed-1, 7))
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
