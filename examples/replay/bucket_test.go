package replay_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

const (
	indexPath     = "/model.safetensors.index.json"
	recordingPath = "/model.opened"
)

// A bucket serves a checkpoint of equal shards over HTTP. Data is computed: all tensors
// are zero. It takes some time for each request and refuses requests above a rate, as
// buckets do.
type bucket struct {
	shards, tensors int // tensors of 1 MiB in each shard
	latency         time.Duration
	rate            int // requests per second; 0: no limit

	headers   map[string][]byte // of the shards, by path
	index     []byte
	etag      string
	recording []byte // what replay.Transport.Encode wrote
	now       func() time.Time

	mu     sync.Mutex
	counts counts
	tokens float64 // requests that may come at once, up to those of a tenth of a second
	filled time.Time
}

// counts are what a bucket has served.
type counts struct {
	requests, refused int
	sent              int64 // bytes
}

// serve starts a server for b.
func (b *bucket) serve() (url string, stop func()) {
	b.etag, b.now = `"1"`, time.Now
	b.headers = make(map[string][]byte)
	for i := range b.shards {
		h := safetensors.Header{Tensors: make([]safetensors.TensorInfo, b.tensors)}
		for k := range h.Tensors {
			h.Tensors[k] = safetensors.TensorInfo{Name: tensorName(i, k), DType: safetensors.BF16, Shape: []int{512, 1024}}
		}
		text, err := h.AppendBinary(nil)
		if err != nil {
			panic(err)
		}
		b.headers[b.shardPath(i)] = text
	}
	b.index = b.appendIndex(nil)
	s := httptest.NewServer(b)
	return s.URL, s.Close
}

func (b *bucket) shardPath(i int) string {
	return fmt.Sprintf("/model-%05d-of-%05d.safetensors", i+1, b.shards)
}

func tensorName(shard, i int) string { return fmt.Sprintf("layers.%d.experts.%d.w", shard, i) }

// appendIndex appends the index, without blanks: with the usual ones, a million tensors
// exceed the limit of 64 MiB.
func (b *bucket) appendIndex(text []byte) []byte {
	text = append(text, `{"weight_map":{`...)
	for shard := range b.shards {
		for i := range b.tensors {
			text = fmt.Appendf(text, `"%s":"%s",`, tensorName(shard, i), b.shardPath(shard)[1:])
		}
	}
	return append(text[:len(text)-1], `}}`...)
}

// restart returns the counts since the last call, and lets the rate start again.
func (b *bucket) restart() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts
	b.counts, b.tokens, b.filled = counts{}, float64(b.rate)/10, b.now()
	return c
}

// admit counts a request and reports whether it is within the rate.
func (b *bucket) admit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts.requests++
	if b.rate == 0 {
		return true
	}
	now, rate := b.now(), float64(b.rate)
	b.tokens = min(b.tokens+now.Sub(b.filled).Seconds()*rate, max(rate/10, 1))
	b.filled = now
	if b.tokens < 1 {
		b.counts.refused++
		return false
	}
	b.tokens--
	return true
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	admitted := b.admit()
	time.Sleep(b.latency)
	if !admitted {
		http.Error(w, "SlowDown", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("ETag", b.etag)
	w.Header().Set("Content-Type", "application/octet-stream")
	var content io.ReadSeeker
	switch h, isShard := b.headers[r.URL.Path]; {
	case isShard:
		content = io.NewSectionReader(shard(h), 0, int64(len(h)+b.tensors<<20))
	case r.URL.Path == indexPath:
		content = bytes.NewReader(b.index)
	case r.URL.Path == recordingPath:
		content = bytes.NewReader(b.recording)
	default:
		http.NotFound(w, r)
		return
	}
	http.ServeContent(&counter{w, b}, r, "", time.Time{}, content)
}

// A shard is its header, and zeros after it.
type shard []byte

func (s shard) ReadAt(p []byte, off int64) (int, error) {
	n := 0
	if off < int64(len(s)) {
		n = copy(p, s[off:])
	}
	clear(p[n:])
	return len(p), nil
}

// A counter counts the bytes that are sent.
type counter struct {
	http.ResponseWriter
	bucket *bucket
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.bucket.mu.Lock()
	c.bucket.counts.sent += int64(n)
	c.bucket.mu.Unlock()
	return n, err
}

// TestRate checks that the bucket refuses requests above the rate.
func TestRate(t *testing.T) {
	now := time.Now()
	b := &bucket{rate: 10, now: func() time.Time { return now }}
	b.restart()
	require.True(t, b.admit())
	require.False(t, b.admit())
	now = now.Add(time.Second / 10)
	require.True(t, b.admit())
	require.Equal(t, counts{requests: 3, refused: 1}, b.restart())
}
