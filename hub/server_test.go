package hub

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

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

// These are commits of the served repositories.
const (
	commitOne = "0123456789abcdef0123456789abcdef01234567"
	commitTwo = "89abcdef0123456789abcdef0123456789abcdef"
)

// A server serves files over HTTP, records the requests and fails on demand.
type server struct {
	*httptest.Server

	mu       sync.Mutex
	files    map[string][]byte // contents by path
	requests []*http.Request

	// fault may be nil. It is called before a request is answered, with the
	// number of the request, counted from 0, and reports whether it has answered.
	fault func(n int, w http.ResponseWriter, r *http.Request) bool
}

func newServer(t testing.TB) *server {
	s := &server{files: map[string][]byte{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, r)
	data, ok := s.files[r.URL.Path]
	s.mu.Unlock()
	switch {
	case s.fault != nil && s.fault(n, w, r):
	case !ok:
		http.NotFound(w, r)
	default:
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
}

func (s *server) add(path string, data []byte) { s.files[path] = data }

// statusOf returns a fault that answers the first n requests with a status and header fields.
func statusOf(n, status int, header ...string) func(int, http.ResponseWriter, *http.Request) bool {
	return func(k int, w http.ResponseWriter, _ *http.Request) bool {
		if k >= n {
			return false
		}
		for i := 0; i < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		return true
	}
}

// craft returns a file with the U8 tensor t, a header of headerLength bytes and dataLength bytes of
// data.
func craft(headerLength, dataLength int) []byte {
	text := fmt.Sprintf(`{"t":{"dtype":"U8","shape":[%d],"data_offsets":[0,%d]}}`, dataLength, dataLength)
	file := binary.LittleEndian.AppendUint64(nil, uint64(headerLength))
	file = append(file, text+strings.Repeat(" ", headerLength-len(text))...)
	return append(file, make([]byte, dataLength)...)
}

// newClient returns a Client of a hub that has no token.
func newClient(t *testing.T, endpoint string) *Client {
	setEnvironment(t, t.TempDir(), nil)
	return &Client{Endpoint: endpoint}
}
