package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/transport"
)

const inFlight = transport.InFlight

// A fault is called before a request is answered, with the number of the request, counted
// from 0, and reports whether it has answered.
type fault func(n int, w http.ResponseWriter, r *http.Request) bool

// then returns a fault that calls next for each request that f does not answer.
func (f fault) then(next fault) fault {
	return func(n int, w http.ResponseWriter, r *http.Request) bool { return f(n, w, r) || next(n, w, r) }
}

// A server serves files over HTTP, records the requests and fails on demand.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	files    map[string][]byte // contents by path
	etag     string
	modified time.Time
	requests []*http.Request
	sent     int64 // number of bytes of bodies that were sent
	fault    fault // may be nil
}

func newServer(t testing.TB) *server { return startServer(t, false) }

// startServer starts a server of HTTP/1.1 or 2.
func startServer(t testing.TB, http2 bool) *server {
	s := &server{files: map[string][]byte{}, etag: `"v1"`}
	s.Server = httptest.NewUnstartedServer(s)
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetWriteBuffer(1 << 20) // limits the buffer, because some machines would allow dozens of MiB
		}
		return ctx
	}
	if s.EnableHTTP2 = http2; http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(func() {
		s.CloseClientConnections() // because wine does not wake a server that writes to a closed connection
		s.Close()
	})
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, r)
	fault := s.fault
	data, ok := s.files[r.URL.Path]
	etag, modified := s.etag, s.modified
	s.mu.Unlock()
	w = &counter{w, s}
	switch {
	case fault != nil && fault(n, w, r):
	case !ok:
		http.NotFound(w, r)
	default:
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		http.ServeContent(w, r, "model.bin", modified, bytes.NewReader(data))
	}
}

// A counter counts the bytes of a body.
type counter struct {
	http.ResponseWriter
	*server
}

func (c *counter) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.sent += int64(len(p)) // counted before the client can see them
	c.mu.Unlock()
	return c.ResponseWriter.Write(p)
}

func (c *counter) Flush() { http.NewResponseController(c.ResponseWriter).Flush() }

func (c *counter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// bytes returns how many bytes of bodies s has sent, or tried to.
func (s *server) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// ranges returns the Range headers of all requests.
func (s *server) ranges() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ranges []string
	for _, r := range s.requests {
		ranges = append(ranges, r.Header.Get("Range"))
	}
	return ranges
}

// reset forgets the requests and sets fault.
func (s *server) reset(fault fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.sent, s.fault = nil, 0, fault
}

// closing returns a func that closes s, and a client whose connections are refused from then on.
// The client then connects to another port, where no server listens, because another program may
// get the port of s.
func closing(s *server) (client *http.Client, close func()) {
	var closed atomic.Bool
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if closed.Load() && address == s.Listener.Addr().String() {
			address = "127.0.0.1:1"
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial}}, func() { closed.Store(true); s.Close() }
}

// must returns v. It panics if err is not nil, so use it only for calls that cannot fail in the
// test.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// errorOf returns the error of a call.
func errorOf[T any](_ T, err error) error { return err }

// add serves a file and returns its URL.
func (s *server) add(path string, data []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[path] = data
	return s.URL + path
}

// redirectTo returns a handler that redirects to a URL.
func redirectTo(url string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, url, http.StatusFound) }
}

// always returns a fault that answers all requests.
func always(answer http.HandlerFunc) fault { return first(math.MaxInt, answer) }

// first returns a fault that answers only the first n requests.
func first(n int, answer http.HandlerFunc) fault {
	return func(k int, w http.ResponseWriter, r *http.Request) bool {
		if k < n {
			answer(w, r)
		}
		return k < n
	}
}

// ignoring returns a fault that lets the server ignore a header field of requests.
func ignoring(field string) fault {
	return func(_ int, _ http.ResponseWriter, r *http.Request) bool {
		r.Header.Del(field)
		return false
	}
}

// craft returns a file with the U8 tensor t, a header of headerLength bytes and dataLength bytes of
// data.
func craft(headerLength, dataLength int) []byte {
	text := fmt.Sprintf(`{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, dataLength, dataLength)
	file := binary.LittleEndian.AppendUint64(nil, uint64(headerLength))
	file = append(file, text+strings.Repeat(" ", headerLength-len(text))...)
	return append(file, pattern(dataLength)...)
}

// pattern returns n bytes in which neighboring stretches differ.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i) ^ byte(i>>8)*7 ^ byte(i>>16)*31
	}
	return b
}

// encode returns a file with these tensors.
func encode(tensors map[string]safetensors.Tensor, metadata map[string]string) []byte {
	var b bytes.Buffer
	if err := safetensors.Write(&b, tensors, metadata); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// A clock records the pauses of a Client without waiting.
type clock struct {
	mu     sync.Mutex
	pauses []time.Duration
}

func (c *clock) pause(_ context.Context, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pauses = append(c.pauses, d)
}

// newClient returns a Client that never waits.
func newClient() (*Client, *clock) {
	c := new(clock)
	return &Client{pace: pace{pause: c.pause}}, c
}

// newClientOf returns a Client that never waits and trusts the certificate of a server. It
// must close each body.
func newClientOf(t *testing.T, s *server) (*Client, *clock) {
	client, clock := newClient()
	open, base := new(atomic.Int64), s.Server.Client().Transport
	t.Cleanup(func() { require.Zero(t, open.Load(), "bodies are left open") })
	client.HTTP = &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		resp, err := base.RoundTrip(r)
		if err == nil {
			open.Add(1)
			resp.Body = &body{ReadCloser: resp.Body, close: sync.OnceFunc(func() { open.Add(-1) })}
		}
		return resp, err
	})}
	return client, clock
}

// A body calls close when it is closed. Every other Read returns 0 bytes and no error, which
// io.Reader allows.
type body struct {
	io.ReadCloser
	close func()
	idle  bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.idle = !b.idle; b.idle {
		return 0, nil
	}
	return b.ReadCloser.Read(p)
}

func (b *body) Close() error {
	b.close()
	return b.ReadCloser.Close()
}

// openTensor opens a file and returns its tensor t.
func openTensor(t testing.TB, c *Client, url string) safetensors.Tensor {
	f := must(c.Open(t.Context(), url))
	t.Cleanup(func() { f.Close() })
	return must(f.Tensor("t"))
}

// bytesOf returns the bytes of a tensor.
func bytesOf(tensor safetensors.Tensor) []byte {
	return must(safetensors.Append[byte](nil, tensor))
}
