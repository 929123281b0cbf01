package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestClientIsUsedAndNotModified: CheckRedirect sees the redirect, and the header of the next
// request.
func TestClientIsUsedAndNotModified(t *testing.T) {
	hub, cdn := newServer(t), newServer(t)
	target := cdn.add("/blob", craft(100, 10))
	hub.fault = always(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Any", "value")
		redirectTo(target)(w, r)
	})
	jar := must(cookiejar.New(nil))
	u, _ := url.Parse(hub.URL)
	jar.SetCookies(u, []*http.Cookie{{Name: "c", Value: "v"}})
	var sent atomic.Int32
	var answer error
	h := &http.Client{
		Jar: jar,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			require.Equal(t, "value", req.Response.Header.Get("X-Any"))
			require.NotContains(t, fmt.Sprint(req.Header), "secret")
			require.Equal(t, "/blob", req.URL.Path)
			require.Equal(t, "/m", via[0].URL.Path)
			require.Equal(t, "secret", via[0].Header.Get("X-Api-Key"))
			req.Header.Set("X-Added", "value")
			return answer
		},
		Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			return http.DefaultTransport.RoundTrip(r)
		}),
	}
	before := fmt.Sprintf("%p %p %p", h.Jar, h.CheckRedirect, h.Transport)
	client, _ := newClient()
	client.HTTP, client.Header = h, secrets()
	openTensor(t, client, hub.URL+"/m")
	require.Equal(t, int32(2), sent.Load())
	require.Contains(t, hub.requests[0].Header.Get("Cookie"), "c=v")
	require.Equal(t, "value", cdn.requests[0].Header.Get("X-Added"))
	require.Equal(t, before, fmt.Sprintf("%p %p %p", h.Jar, h.CheckRedirect, h.Transport))

	answer = http.ErrUseLastResponse
	require.ErrorContains(t, errorOf(client.Open(t.Context(), hub.URL+"/m")), "status 302 Found, expected 206")
	answer = errors.New("refused")
	require.ErrorIs(t, errorOf(client.Open(t.Context(), hub.URL+"/m")), answer)
	require.Len(t, cdn.requests, 1)
}

// TestErrorsThatNoRetryHelps: an error that another try cannot solve, such as a wrong certificate
// or a host that does not exist, ends Open at the first try. The error shows no secret.
func TestErrorsThatNoRetryHelps(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	tls := httptest.NewUnstartedServer(http.NotFoundHandler()) // its certificate is not trusted
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	defer tls.Close()
	for name, url := range map[string]string{
		"certificate": tls.URL + "/m?secret",
		"not TLS":     "https" + strings.TrimPrefix(plain.URL, "http") + "/m?secret",
	} {
		client, clock := newClient()
		_, err := client.Open(t.Context(), url)
		require.Error(t, err, name)
		require.Empty(t, clock.pauses, name)
		require.NotContains(t, err.Error(), "secret")
	}

	client, clock := newClient()
	client.HTTP = &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, tried{fs.ErrPermission} })}
	require.ErrorIs(t, errorOf(client.Open(t.Context(), plain.URL+"/m")), fs.ErrPermission)
	require.Empty(t, clock.pauses, "the transport has tried")

	client.Header = http.Header{"Authorization": {"Bearer secret\n"}}
	_, err := client.Open(t.Context(), plain.URL+"/m")
	require.EqualError(t, err, `safetensors: the value of header "Authorization" has a control character, such as a newline`)
	require.ErrorContains(t, errorOf(client.ReadFile(t.Context(), plain.URL+"/m")), "a newline")
	for c := range 256 {
		err := checkHeader(http.Header{"X": {"a" + string([]byte{byte(c)}) + "b"}})
		require.Equal(t, c != '\t' && c < ' ' || c == 0x7f, err != nil, "%#x", c)
	}
	for _, name := range []string{"", "X Y", "X:", "Ä"} {
		client.Header = http.Header{name: {"x"}}
		require.ErrorContains(t, errorOf(client.Open(t.Context(), plain.URL+"/m")), "invalid header name")
	}
	require.Empty(t, clock.pauses)
}

type tried struct{ error }

func (e tried) Unwrap() error { return e.error }
func (e tried) Tried() bool   { return true }

// TestNoAnswer counts the tries of a request to an address where no server listens. Once the
// context is done, there is no further try.
func TestNoAnswer(t *testing.T) {
	for done, pauses := range map[bool]int{false: maxTries - 1, true: 0} {
		client, clock := newClient()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client.HTTP = &http.Client{Transport: roundTripper(func(*http.Request) (*http.Response, error) {
			if done {
				cancel()
			}
			return nil, io.EOF
		})}
		_, err := client.Open(ctx, "http://127.0.0.1/m?secret")
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.Equal(t, done, errors.Is(err, context.Canceled), err)
		require.NotContains(t, err.Error(), "secret")
		require.Len(t, clock.pauses, pauses)
	}
}

// TestRefusedConnection: the client gives up on a host that accepts no connection within a second,
// unless the host has answered before.
func TestRefusedConnection(t *testing.T) {
	s := newServer(t)
	client, clock := newClient()
	var close func()
	client.HTTP, close = closing(s)
	tensor := openTensor(t, client, s.add("/m", craft(100_000, 1000)))
	close()
	_, err := client.Open(t.Context(), s.URL+"/m?secret")
	require.ErrorContains(t, err, "(tried 3 times)")
	require.NotContains(t, err.Error(), "secret")
	require.Len(t, clock.pauses, maxDials-1)
	longest := time.Duration(0)
	for n := range maxDials - 1 {
		longest += firstPause << n
	}
	require.Less(t, longest, time.Second)

	clock.pauses = nil
	require.ErrorContains(t, errorOf(safetensors.Append[byte](nil, tensor)), "(tried 8 times)")
	require.Len(t, clock.pauses, maxTries-1)
}

// TestConnectionsAreKept reads one range after another, then 20 at once, ten times.
func TestConnectionsAreKept(t *testing.T) {
	var opened atomic.Int32
	s := newServer(t)
	counted := httptest.NewUnstartedServer(s)
	counted.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	counted.Start()
	defer counted.Close()
	s.add("/m", pattern(20<<20))
	client, _ := newClient()
	o := openObject(t, client, counted.URL+"/m")
	for i := range 20 {
		must(o.ReadAt(make([]byte, 1000*(i+1)), int64(i)<<16))
	}
	// net/http closes a connection if it has not seen its request leave within 50 ms.
	require.Less(t, opened.Load(), int32(5))
	for range 10 {
		var runs []run
		for i := range inFlight {
			runs = append(runs, run{int64(i) << 20, 10})
		}
		require.NoError(t, o.ReadRanges(seqOf(make([]byte, 10*inFlight), runs...)))
	}
	// A request may get a connection that became idle while it was opening one.
	require.LessOrEqual(t, opened.Load(), int32(5*inFlight))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestReadFile: a small file is read whole, with retries, and one above the limit is refused.
func TestReadFile(t *testing.T) {
	s := newServer(t)
	client, _ := newClient()
	s.add("/config.json", []byte(`{"a":1}`))
	s.fault = first(1, statusOf(http.StatusServiceUnavailable))
	require.Equal(t, `{"a":1}`, string(must(client.ReadFile(t.Context(), s.URL+"/config.json"))))
	require.Len(t, s.requests, 2, "tried again")

	s.fault = nil
	require.ErrorIs(t, errorOf(client.ReadFile(t.Context(), s.URL+"/none.json")), fs.ErrNotExist)
	s.add("/large", make([]byte, maxDownload+1))
	require.ErrorContains(t, errorOf(client.ReadFile(t.Context(), s.URL+"/large")), "it has more than 67108864 bytes")
	require.ErrorContains(t, errorOf(client.ReadFile(t.Context(), "file:///etc/passwd")), "safetensors: ")
}

// TestTransportThatEnds lets the transport panic or call runtime.Goexit in the middle of many
// reads. Each read ends, and Close returns.
func TestTransportThatEnds(t *testing.T) {
	s := newServer(t)
	tensors := map[string]safetensors.Tensor{}
	data := make([]byte, 3<<20)
	for _, name := range []string{"a", "b", "c", "d"} {
		tensors[name] = must(safetensors.NewTensor(safetensors.U8, []int{1 << 10, 3 << 10}, data))
	}
	s.add("/m", encode(tensors, nil))
	for _, end := range []func(){func() { panic("boom") }, runtime.Goexit} {
		var sent atomic.Int64
		client := &Client{HTTP: &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			if sent.Add(1) > 2 {
				end()
			}
			return http.DefaultTransport.RoundTrip(r)
		})}}
		f := must(client.Open(t.Context(), s.URL+"/m"))
		var all sync.WaitGroup
		for i := range 20 {
			all.Add(1)
			go func() {
				defer all.Done()
				defer func() { recover() }()
				x, _ := f.Tensor([]string{"a", "b", "c", "d"}[i%4])
				if i%2 == 0 {
					x, _ = x.Slice(safetensors.All(), safetensors.Span(0, 16))
				}
				safetensors.Append[byte](nil, x)
			}()
		}
		all.Wait()
		require.NoError(t, f.Close())
	}
}

// A lyingBody reads zeros. The number of bytes that it returns is too large by the field by.
type lyingBody struct{ by int }

func (l lyingBody) Read(p []byte) (int, error) { return len(p) + l.by, nil }
func (l lyingBody) Close() error               { return nil }

// TestLyingTransport: a body that returns a wrong number of bytes is an error, whichever way the file is read.
func TestLyingTransport(t *testing.T) {
	for _, by := range []int{1, 1 << 30, -1 << 30} {
		client, _ := newClient()
		client.HTTP = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			answer := &http.Response{StatusCode: 200, Header: http.Header{}, ContentLength: -1, Body: lyingBody{by}, Request: r}
			if r.Header.Get("Range") != "" {
				answer.StatusCode = 206
				answer.Header.Set("Content-Range", "bytes 0-100007/200000")
			}
			return answer, nil
		})}
		require.ErrorContains(t, errorOf(client.Open(t.Context(), "http://h/m")), "the body returned")
		require.ErrorContains(t, errorOf(client.ReadFile(t.Context(), "http://h/m")), "the body returned")
	}
}
