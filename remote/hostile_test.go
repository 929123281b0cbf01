package remote

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors/internal/testplatform"
)

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
			s := newServer(t)
			s.fault = always(func(w http.ResponseWriter, _ *http.Request) {
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
			client, _ := newClient()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			memory := allocated(func() {
				require.ErrorContains(t, errorOf(client.Open(ctx, s.URL+"/m")), "(tried 8 times)")
			})
			require.LessOrEqual(t, len(s.ranges()), 2*maxTries)
			require.LessOrEqual(t, sent.Load(), int64(mostInFlight))
			if !testplatform.RaceEnabled {
				require.LessOrEqual(t, memory, uint64(maxTries*16<<20))
			}
		})
	}
}

// TestOpenCapped opens a model on a server that caps its answers.
func TestOpenCapped(t *testing.T) {
	requireNoGoroutinesLeft(t)
	const header, data, most = 250_000, 100_000, 10_000
	file := craft(header, data)
	s := newServer(t)
	s.fault = always(func(w http.ResponseWriter, r *http.Request) { sendCapped(w, r, file, most) })
	client, _ := newClient()
	require.Equal(t, pattern(data), bytesOf(openTensor(t, client, s.URL+"/m")))
	require.LessOrEqual(t, len(s.ranges()), (8+header+data)/most+4)
}
