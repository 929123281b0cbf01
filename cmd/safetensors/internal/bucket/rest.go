package bucket

import (
	"bytes"
	"context"
	"encoding/xml"
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
)

// A rest is the HTTP client of a store whose requests are objects and XML.
type rest struct {
	http interface {
		Do(*http.Request) (*http.Response, error)
	}
	base      *url.URL // of the bucket
	authorize func(r *http.Request, body []byte) error
	tries     int // of a request that fails for now
}

// A request is what is sent, as often as it takes.
type request struct {
	method, key string
	query       url.Values
	header      map[string]string
	body        []byte
	answer      any // what the XML of the answer is decoded into; nil to leave the body open
}

const (
	defaultTries  = 5
	firstPause    = time.Second / 4  // before the second try; doubled before each later one
	longestPause  = 20 * time.Second // as in Amazon's libraries; unless the store asks for more
	longestAsked  = time.Minute      // if it does
	leastTry      = 1 << 10          // bytes of a body after which the count of tries restarts
	goodTry       = 64 << 10         // bytes after which one that broke off is continued without a pause
	mostRedirects = 10
	longAnswer    = 64 << 20 // of XML: a thousand keys take about one MB
	mostPages     = 10_000   // of a list
	mostListed    = 1 << 20  // objects of a folder, far more than a model has
)

// stall is how long a connection may bring nothing. S3 takes minutes to complete an
// upload, and so may a part.
var stall = 5 * time.Minute

// patient returns a client that keeps the connections of all concurrent requests. It
// follows no redirections but 307 and 308, and few of these.
func patient(c *awshttp.BuildableClient) *http.Client {
	c = c.WithReadTimeout(stall).WithTransportOptions(func(t *http.Transport) { t.MaxIdleConnsPerHost = 32 })
	client := c.Freeze().(*http.Client)
	check := client.CheckRedirect
	client.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		if len(via) > mostRedirects {
			return fmt.Errorf("more than %d redirections", mostRedirects)
		}
		return check(r, via)
	}
	return client
}

func anonymous(*http.Request, []byte) error { return nil }

// send sends a request until it succeeds, fails for good or has failed too often. The
// caller closes the body if the request has no answer to be decoded.
func (c *rest) send(ctx context.Context, r request) (*http.Response, error) {
	for failed := 1; ; failed++ {
		resp, err := c.try(ctx, r)
		if !again(ctx, c.tries, failed, err) {
			return resp, err
		}
	}
}

// again reports whether another try follows those that failed, the last one with err. It
// waits before it says yes.
func again(ctx context.Context, tries, failed int, err error) bool {
	if failed >= tries || !temporary(err) || ctx.Err() != nil {
		return false
	}
	asked := time.Duration(0)
	if r := new(refusal); errors.As(err, &r) {
		asked = r.after
	}
	wait(ctx, max(pause(failed), min(asked, longestAsked)))
	return true
}

// wait waits for d or the end of ctx. Tests do not.
var wait = func(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// pause returns how long to wait after some tries that failed. Clients that failed together
// come back apart.
func pause(failed int) time.Duration {
	longest := longestPause
	if failed < 8 {
		longest = firstPause << (failed - 1)
	}
	return longest/2 + rand.N(longest/2)
}

// done sends a request whose answer is that it has been done.
func (c *rest) done(ctx context.Context, r request) error {
	resp, err := c.send(ctx, r)
	if err == nil {
		drain(resp)
	}
	return err
}

// drain keeps the connection for the next request.
func drain(resp *http.Response) {
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	resp.Body.Close()
}

func (c *rest) try(ctx context.Context, r request) (*http.Response, error) {
	u := *c.base
	if r.key != "" {
		u.Path += "/" + r.key
	}
	u.RawPath = escapePath(u.Path)
	u.RawQuery = joinQuery(c.base.RawQuery, strings.ReplaceAll(r.query.Encode(), "+", "%20"))
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if err := c.authorize(req, r.body); err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		var withURL *url.Error // which may hold a signature
		if errors.As(err, &withURL) {
			err = withURL.Err
		}
		return nil, &lost{err}
	}
	if resp.StatusCode < 300 && r.answer == nil {
		return resp, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, longAnswer))
	if resp.StatusCode >= 300 {
		return nil, newRefusal(resp, body)
	}
	if err != nil {
		return nil, &lost{err}
	}
	if refused := newRefusal(resp, body); refused.Code != "" {
		refused.status = http.StatusInternalServerError // S3 answers 200 before it has completed an upload
		return nil, refused
	}
	if err := xml.Unmarshal(body, r.answer); err != nil {
		return nil, fmt.Errorf("the answer to %s is not the XML that was expected: %w", r.method, err)
	}
	return resp, nil
}

// escapePath escapes all but the unreserved characters and slashes. S3 computes signatures
// with that, and Go would leave more.
func escapePath(path string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(path), "+", "%20"), "%2F", "/")
}

func joinQuery(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "&" + b
}

// A lost error leaves open whether a request has been done.
type lost struct{ error }

func (e *lost) Unwrap() error { return e.error }

// A refusal is the answer of a store that does not do what it is asked for.
type refusal struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
	status  int
	region  string        // of the bucket, if another one was asked
	after   time.Duration // that the store asks to wait before the next try
}

func newRefusal(resp *http.Response, body []byte) *refusal {
	r := new(refusal)
	if xml.Unmarshal(body, r) != nil {
		r = &refusal{Code: resp.Header.Get("X-Ms-Error-Code")}
	}
	r.status, r.after = resp.StatusCode, retryAfter(resp.Header)
	switch r.status {
	case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusBadRequest:
		r.region = resp.Header.Get("X-Amz-Bucket-Region")
	}
	return r
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

func (r *refusal) Error() string {
	text := fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
	if r.Code != "" {
		text += ": " + r.Code
	}
	if r.Message != "" {
		text += fmt.Sprintf(": %.300s", r.Message)
	}
	if r.region != "" {
		text += fmt.Sprintf("; the bucket is in another region, add ?region=%.40s", r.region)
	}
	return text
}

// temporary reports whether a request that failed may succeed later.
func temporary(err error) bool {
	switch status(err) {
	case 0:
		return errors.As(err, new(*lost))
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	case http.StatusConflict: // with another request, and not that the object is there
		var r *refusal
		return errors.As(err, &r) && (r.Code == "ConditionalRequestConflict" || r.Code == "OperationAborted")
	}
	return false
}

// status returns the HTTP status of an error of a store, 0 if it has none.
func status(err error) int {
	var r *refusal
	if errors.As(err, &r) {
		return r.status
	}
	return 0
}

func (c *rest) head(ctx context.Context, key string) (attributes, error) {
	resp, err := c.send(ctx, request{method: http.MethodHead, key: key})
	if err != nil {
		return attributes{}, err
	}
	drain(resp)
	if resp.ContentLength < 0 {
		return attributes{}, errors.New("the answer does not tell the size")
	}
	return attributesOf(resp, resp.ContentLength), nil
}

func (c *rest) get(ctx context.Context, key string, off, n int64) (io.ReadCloser, attributes, error) {
	bytes := fmt.Sprintf("bytes=%d-%d", off, off+n-1)
	resp, err := c.send(ctx, request{method: http.MethodGet, key: key, header: map[string]string{"Range": bytes}})
	if err != nil {
		return nil, attributes{}, err
	}
	size, err := sizeInRange(resp.Header.Get("Content-Range"), off)
	if err != nil {
		resp.Body.Close()
		return nil, attributes{}, err
	}
	return resp.Body, attributesOf(resp, size), nil
}

// start sends a request again whose answer breaks off, as if there had been none.
func (c *rest) start(ctx context.Context, key string, n int64) ([]byte, error) {
	for failed := 1; ; failed++ {
		r, now, err := c.get(ctx, key, 0, n)
		if status(err) == http.StatusRequestedRangeNotSatisfiable {
			return nil, nil // it is empty
		}
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(io.LimitReader(r, n))
		r.Close()
		if err == nil && int64(len(data)) < min(n, now.size) {
			err = io.ErrUnexpectedEOF
		}
		if err == nil || !again(ctx, c.tries, failed, &lost{err}) {
			return data, err
		}
	}
}

func attributesOf(resp *http.Response, size int64) attributes {
	modified, _ := http.ParseTime(resp.Header.Get("Last-Modified"))
	return attributes{size, modified, resp.Header.Get("ETag")}
}

// sizeInRange returns the size of the object in a header like "bytes 0-9/100", of an answer
// that starts at off.
func sizeInRange(text string, off int64) (int64, error) {
	span, total, _ := strings.Cut(text, "/")
	_, span, _ = strings.Cut(span, " ")
	first, _, _ := strings.Cut(span, "-")
	start, err := strconv.ParseInt(first, 10, 64)
	size, errSize := strconv.ParseInt(total, 10, 64)
	if err != nil || errSize != nil || start != off {
		return 0, fmt.Errorf("the answer has the range %.40q, expected one from byte %d on with the size of the object", text, off)
	}
	return size, nil
}

// next has a query ask for the next page of a list, of which there were pages with listed
// objects.
func next(query url.Values, name, token string, pages, listed int) error {
	switch {
	case token == "" || token == query.Get(name):
		return errors.New("the list ends early: the answer does not say where it goes on")
	case pages >= mostPages || listed >= mostListed:
		return fmt.Errorf("the list does not end: %d objects so far", listed)
	}
	query.Set(name, token)
	return nil
}

func (c *rest) delete(ctx context.Context, key string) error {
	return c.done(ctx, request{method: http.MethodDelete, key: key})
}
