package remote

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// raceEnabled reports whether this test binary has the race detector, which
// allocates.
var raceEnabled = func() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}()

// requireNoGoroutinesLeft checks that those of a test have ended after its other
// cleanups: call it first.
func requireNoGoroutinesLeft(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "js" {
		return // its runtime has one more at times
	}
	before := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 5000 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("goroutines are left:\n%s", stacks[:runtime.Stack(stacks, true)])
	})
}

// allocated returns the bytes that f allocates, together with the test server.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A hostile server answers all requests alike. It counts the requests, and the
// bytes of the bodies until the client hangs up.
type hostile struct {
	*httptest.Server
	client         *Client
	requests, sent atomic.Int64
}

// newHostile starts a hostile server, of HTTP/1.1 or 2, and a Client of its own.
func newHostile(t *testing.T, http2 bool, answer http.HandlerFunc) *hostile {
	s := new(hostile)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		answer(&metered{w, s}, r)
	}))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if secure, ok := c.(*tls.Conn); ok {
			c = secure.NetConn()
		}
		if tcp, ok := c.(*net.TCPConn); ok {
			tcp.SetWriteBuffer(1 << 20) // the settings of some machines allow dozens of MiB
		}
		return ctx
	}
	s.EnableHTTP2 = http2
	if http2 {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close) // which closes the connections of its client, too
	s.client, _ = newClient(t)
	if http2 {
		s.client.HTTP = s.Server.Client() // which trusts its certificate
	}
	return s
}

type metered struct {
	http.ResponseWriter
	*hostile
}

func (m *metered) Write(p []byte) (int, error) {
	n, err := m.ResponseWriter.Write(p)
	m.sent.Add(int64(n))
	return n, err
}

func (m *metered) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// endless writes zeros until the client hangs up.
func endless(w io.Writer) {
	zeros := make([]byte, 64<<10)
	for err := error(nil); err == nil; {
		_, err = w.Write(zeros)
	}
}

// mostInFlight is what may be on its way when a client hangs up: buffers of the
// kernel and of HTTP/2.
const mostInFlight = 64 << 20

// TestHostileServers opens what servers send that want to keep or to fill the
// client: an error comes after few requests, few bytes and little memory, and no
// goroutine is left. The ceilings leave room for the test server.
func TestHostileServers(t *testing.T) {
	claim := func(w http.ResponseWriter, size int64) {
		w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", firstRead-1, size))
		w.WriteHeader(http.StatusPartialContent)
	}
	for _, c := range []struct {
		name     string
		path     string // of the file; default /m
		answer   http.HandlerFunc
		requests int64 // at most
		text     string
	}{
		{name: "endless body", answer: func(w http.ResponseWriter, _ *http.Request) { endless(w) }, requests: 1, text: "does not support range requests"},
		{name: "endless body of an error", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			endless(w)
		}, requests: maxTries, text: "status 500"},
		{name: "endless body of a refusal", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(403)
			endless(w)
		}, requests: 1, text: "status 403"},
		{name: "endless body of a redirect", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/m")
			w.WriteHeader(302)
			endless(w)
		}, requests: 1 + maxRedirects, text: "more than 10 redirects"},
		{name: "endless body of a range", answer: func(w http.ResponseWriter, _ *http.Request) {
			claim(w, 1<<50)
			endless(w)
		}, requests: 1, text: "expected an object, the header"},
		{name: "file of any size", answer: func(w http.ResponseWriter, _ *http.Request) {
			claim(w, 1<<58)
			w.Write(craft(firstRead-8, 0))
		}, requests: 2, text: "tensors end at 0"},
		{name: "header of any size", answer: func(w http.ResponseWriter, _ *http.Request) {
			claim(w, 1<<58)
			w.Write([]byte{0, 0, 0, 0, 0, 0, 1, 0})
			endless(w)
		}, requests: 1, text: "exceeds the limit"},
		{name: "redirects to ever new places", answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path+"/m", http.StatusFound)
		}, requests: 1 + maxRedirects, text: "more than 10 redirects"},
		{name: "no answer", answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, requests: maxTries, text: "the connection stalled (tried 8 times)"},
		{name: "no body", answer: func(w http.ResponseWriter, r *http.Request) {
			claim(w, 1<<30)
			w.(*metered).flush()
			<-r.Context().Done()
		}, requests: maxTries, text: "the connection stalled (tried 8 times)"},
		{name: "redirect that never ends", answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Location", "/m")
			w.Header().Set("Content-Length", "5")
			w.WriteHeader(302)
			w.(*metered).flush()
			<-r.Context().Done()
		}, requests: maxTries, text: "the connection stalled (tried 8 times)"},
		{name: "body cut again and again", answer: func(w http.ResponseWriter, _ *http.Request) {
			claim(w, 1<<30)
			w.(*metered).flush()
			panic(http.ErrAbortHandler)
		}, requests: 2 * maxTries, text: "(tried 8 times)"}, // net/http tries again, too
		{name: "compressed range", answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			claim(w, 1<<30)
			w.Write(bomb())
		}, requests: 1, text: `Content-Encoding "gzip"`},
		{name: "gzip bomb for an index", path: "/m.safetensors.index.json", answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Write(bomb())
		}, requests: 1, text: `Content-Encoding "gzip"`},
		{name: "endless index", path: "/m.safetensors.index.json", answer: func(w http.ResponseWriter, _ *http.Request) { endless(w) }, requests: 1, text: "the index is longer than 67108864 bytes"},
		{name: "an index that never ends", path: "/m.safetensors.index.json", answer: func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, `{"weight_map":{`)
			w.(*metered).flush()
			<-r.Context().Done()
		}, requests: maxTries, text: "the connection stalled (tried 8 times)"},
		{name: "an index of many shards that do not exist", path: "/m.safetensors.index.json", answer: func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, ".json") {
				w.Write(manyShards())
				return
			}
			http.NotFound(w, r)
		}, requests: 1 + 10 + inFlight, text: "status 404"},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%v", c.name, http2), func(t *testing.T) {
				requireNoGoroutinesLeft(t)
				s := newHostile(t, http2, c.answer)
				path := "/m"
				if c.path != "" {
					path = c.path
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				if strings.Contains(c.text, "stalled") {
					s.client.pace.stall = 50 * time.Millisecond
				}
				bomb() // outside of what is measured
				memory := allocated(func() {
					_, err := s.client.Open(ctx, s.URL+path)
					require.ErrorContains(t, err, c.text)
				})
				require.LessOrEqual(t, s.requests.Load(), c.requests)
				require.LessOrEqual(t, s.sent.Load(), int64(mostInFlight+maxIndex))
				if !raceEnabled {
					require.LessOrEqual(t, memory, uint64(14*maxIndex), "two growing buffers of 64 MiB, and what the server allocates")
				}
			})
		}
	}
}

func (m *metered) flush() { http.NewResponseController(m.ResponseWriter).Flush() }

// bomb returns 128 MiB of spaces, compressed.
var bomb = sync.OnceValue(func() []byte {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	spaces := bytes.Repeat([]byte{' '}, 1<<20)
	for range 128 {
		z.Write(spaces)
	}
	z.Close()
	return b.Bytes()
})

// manyShards returns an index of 5,000 shards.
func manyShards() []byte {
	b := []byte(`{"weight_map":{`)
	for i := range 5000 {
		b = fmt.Appendf(b, `"t%d":"s%d.safetensors",`, i, i)
	}
	return append(b[:len(b)-1], "}}"...)
}

// TestHostileHeaders has servers that never finish the header of an answer.
func TestHostileHeaders(t *testing.T) {
	for name, send := range map[string]func(w *bufio.Writer) error{
		"endless header": func(w *bufio.Writer) error {
			_, err := w.WriteString("X-Filler: " + strings.Repeat("x", 1000) + "\r\n")
			return err
		},
		"endless line":             func(w *bufio.Writer) error { _, err := w.WriteString("xxxxxxxxxxxxxxxx"); return err },
		"endless interim answers":  func(w *bufio.Writer) error { _, err := w.WriteString("\r\nHTTP/1.1 103 Early Hints\r\n"); return err },
		"endless continue answers": func(w *bufio.Writer) error { _, err := w.WriteString("\r\nHTTP/1.1 100 Continue\r\n"); return err },
	} {
		t.Run(name, func(t *testing.T) {
			requireNoGoroutinesLeft(t)
			var sent atomic.Int64
			s := newHostile(t, false, func(w http.ResponseWriter, _ *http.Request) {
				conn, buffered, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer conn.Close()
				buffered.WriteString("HTTP/1.1 103 Early Hints\r\n")
				for err == nil {
					before := buffered.Writer.Buffered()
					err = send(buffered.Writer)
					sent.Add(int64(max(0, buffered.Writer.Buffered()-before)))
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			memory := allocated(func() {
				_, err := s.client.Open(ctx, s.URL+"/m")
				require.ErrorContains(t, err, "(tried 8 times)")
			})
			require.LessOrEqual(t, s.requests.Load(), int64(2*maxTries))
			require.LessOrEqual(t, sent.Load(), int64(mostInFlight))
			if !raceEnabled {
				require.LessOrEqual(t, memory, uint64(maxTries*16<<20))
			}
		})
	}
}

// TestHostileReads opens a file whose server then turns hostile: reads fail, or
// return the bytes of the file.
func TestHostileReads(t *testing.T) {
	const data = 300_000
	file := craft(firstRead-8, data)
	part := func(w http.ResponseWriter, r *http.Request, shift int) {
		var from, to int
		fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &from, &to)
		w.Header().Set("ETag", `"v1"`)
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from+shift, to+shift, len(file)))
		w.WriteHeader(http.StatusPartialContent)
		w.Write(file[from : to+1])
	}
	for _, c := range []struct {
		name     string
		answer   http.HandlerFunc
		requests int64  // at most
		text     string // of the error, "" if the read succeeds
	}{
		{"more bytes than the range", func(w http.ResponseWriter, r *http.Request) { part(w, r, 0); endless(w) }, 1, ""},
		{"a range elsewhere", func(w http.ResponseWriter, r *http.Request) { part(w, r, -1) }, 1, "Content-Range"},
		{"another ETag each time", func(w http.ResponseWriter, r *http.Request) {
			w = etagged{w, strconv.FormatInt(time.Now().UnixNano(), 10)}
			part(w, r, 0)
		}, 1, ErrChanged.Error()},
		{"the whole file, and more", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"v1"`)
			w.Write(file)
			endless(w)
		}, 1, "does not support range requests"},
		{"one byte at a time", func(w http.ResponseWriter, r *http.Request) { sendCapped(w, r, file, 1) }, maxTries, "unexpected EOF after 1 bytes (tried 8 times)"},
		{"a range that goes back", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", firstRead+10, firstRead, len(file)))
			w.WriteHeader(http.StatusPartialContent)
		}, 1, "Content-Range"},
		{"gzip of the range", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			part(w, r, 0)
		}, 1, `Content-Encoding "gzip"`},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/http2=%v", c.name, http2), func(t *testing.T) {
				requireNoGoroutinesLeft(t)
				var opened atomic.Bool
				s := newHostile(t, http2, func(w http.ResponseWriter, r *http.Request) {
					if opened.Load() {
						c.answer(w, r)
						return
					}
					w.Header().Set("ETag", `"v1"`)
					http.ServeContent(w, r, "m", time.Time{}, bytes.NewReader(file))
				})
				x := openTensor(t, s.client, s.URL+"/m")
				opened.Store(true)
				s.requests.Store(0)
				s.sent.Store(0)
				got, err := safetensors.Append[byte](nil, x)
				require.LessOrEqual(t, s.requests.Load(), c.requests)
				require.LessOrEqual(t, s.sent.Load(), int64(mostInFlight))
				if c.text == "" {
					require.NoError(t, err)
					require.Equal(t, pattern(data), got)
					return
				}
				require.ErrorContains(t, err, c.text)
				require.Empty(t, got)
			})
		}
	}
}

// An etagged answer has another ETag than the one that is set.
type etagged struct {
	http.ResponseWriter
	tag string
}

func (e etagged) WriteHeader(status int) {
	e.Header().Set("ETag", `"`+e.tag+`"`)
	e.ResponseWriter.WriteHeader(status)
}

// TestOpenCapped opens a model on a server that caps its answers.
func TestOpenCapped(t *testing.T) {
	requireNoGoroutinesLeft(t)
	const header, data, most = 250_000, 100_000, 10_000
	file := craft(header, data)
	s := newHostile(t, false, func(w http.ResponseWriter, r *http.Request) { sendCapped(w, r, file, most) })
	x := openTensor(t, s.client, s.URL+"/m")
	require.Equal(t, pattern(data), bytesOf(t, x))
	require.LessOrEqual(t, s.requests.Load(), int64((8+header+data)/most+4))
}
