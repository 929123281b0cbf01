package remote

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// requireNoGoroutinesLeft checks that all goroutines of a test have ended after its other cleanups.
// Call it first, because cleanups run in reverse order.
func requireNoGoroutinesLeft(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "js" {
		return // the runtime of this system sometimes has one more goroutine
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

// mostInFlight is the largest number of bytes that may be on their way when a client hangs up, in
// buffers of the kernel and of HTTP/2.
const mostInFlight = 64 << 20

// bomb returns compressed data that expands to 128 MiB of spaces.
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

// TestHostileHeaders opens files of servers that never finish the header of an answer.
func TestHostileHeaders(t *testing.T) {
	for name, text := range map[string]string{
		"endless header":           "X-Filler: " + strings.Repeat("x", 1000) + "\r\n",
		"endless line":             "xxxxxxxxxxxxxxxx",
		"endless interim answers":  "\r\nHTTP/1.1 103 Early Hints\r\n",
		"endless continue answers": "\r\nHTTP/1.1 100 Continue\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			requireNoGoroutinesLeft(t)
			var requests, sent atomic.Int64
			url := rawServer(t, func(conn net.Conn) {
				requests.Add(1)
				text := strings.Repeat(text, 4096/len(text))
				_, err := io.WriteString(conn, "HTTP/1.1 103 Early Hints\r\n")
				for n := 0; err == nil; sent.Add(int64(n)) {
					n, err = io.WriteString(conn, text)
				}
			})
			client, _ := newClient()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			memory := testplatform.Allocated(func() {
				require.ErrorContains(t, errorOf(client.Open(ctx, url+"/m")), "(tried 8 times)")
			})
			require.LessOrEqual(t, requests.Load(), int64(2*maxTries))
			require.LessOrEqual(t, sent.Load(), int64(mostInFlight))
			if !testplatform.RaceEnabled {
				require.LessOrEqual(t, memory, uint64(maxTries*16<<20))
			}
		})
	}
}

// rawServer starts a server that calls answer for each connection, whatever the request is. It
// returns the URL of the server.
func rawServer(t *testing.T, answer func(net.Conn)) string {
	l := must(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.(*net.TCPConn).SetWriteBuffer(1 << 20)
				http.ReadRequest(bufio.NewReader(conn))
				answer(conn)
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// TestTextOfServersIsBounded: errors shorten and quote the text of a server, which may be long, or
// move the cursor of a terminal.
func TestTextOfServersIsBounded(t *testing.T) {
	for name, answer := range map[string]string{
		"reason phrase":        "HTTP/1.1 404 EVIL\r\n\r\n",
		"reason phrase of 416": "HTTP/1.1 416 EVIL\r\n\r\n",
		"status line":          "EVIL\r\n\r\n",
		"header line":          "HTTP/1.1 206 Partial Content\r\nEVIL\r\n\r\n",
		"transfer encoding":    "HTTP/1.1 206 OK\r\nTransfer-Encoding: EVIL\r\n\r\n",
		"X-Error-Message":      "HTTP/1.1 401 Unauthorized\r\nX-Error-Message: EVIL\r\n\r\n",
		"Content-Range":        "HTTP/1.1 206 OK\r\nContent-Range: EVIL\r\n\r\n",
		"Content-Encoding":     "HTTP/1.1 200 OK\r\nContent-Encoding: EVIL\r\n\r\n",
		"length of a chunk":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nEVIL\r\n",
		"trailer":              "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nEVIL\r\n\r\n",
		"scheme of a redirect": "HTTP/1.1 302 Found\r\nLocation: ftpEVIL://h/\r\n\r\n",
		"redirect to a URL":    "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/ESCAPED?secret\r\n\r\n",
	} {
		for kind, evil := range map[string]string{
			"long":    strings.Repeat("x", 20_000), // longer than a buffer of net/http
			"shorter": strings.Repeat("x", 3000),
			"control": "\x1b[2Jx\u202e",
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				client, _ := newClient()
				evilly := strings.NewReplacer("EVIL", evil, "ESCAPED", url.PathEscape(evil))
				server := rawServer(t, func(conn net.Conn) { evilly.WriteString(conn, answer) })
				_, err := client.Open(t.Context(), server+"/m")
				require.Error(t, err)
				require.Less(t, len(err.Error()), 2000)
				require.False(t, strings.ContainsFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) }), "%q", err)
				require.NotContains(t, err.Error(), "secret")
			})
		}
	}
}

// TestURLsAreCut: an error shows a URL of the largest allowed length as a whole, and cuts a longer
// one.
func TestURLsAreCut(t *testing.T) {
	for n, want := range map[int]int{1000: 1000, 1001: 1000 + len("…")} {
		u := &url.URL{Scheme: "http", Host: "h", Path: "/" + strings.Repeat("x", n-len("http://h/"))}
		require.Len(t, redact(u), want)
	}
}

// TestForeignErrorsKeepTheirCause: the text of an error of net/http is quoted or cut if it is long
// or not printable, and errors.As still finds the cause of the error.
func TestForeignErrorsKeepTheirCause(t *testing.T) {
	for text, want := range map[string]string{
		"short":                  "short",
		"line\nbreak":            `"line\nbreak"`,
		strings.Repeat("x", 200): strings.Repeat("x", 200),
		strings.Repeat("x", 201): `"` + strings.Repeat("x", 200) + `"`,
	} {
		err := &foreign{fmt.Errorf("%s%w", text, empty{})}
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, fs.ErrClosed)
		require.ErrorAs(t, &temporary{error: err}, new(empty))
	}
	require.True(t, errors.Is(&temporary{error: fs.ErrClosed}, fs.ErrClosed))
}

// An empty error has no text.
type empty struct{}

func (empty) Error() string { return "" }
func (empty) Unwrap() error { return fs.ErrClosed }
