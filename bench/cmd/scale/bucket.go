package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gosafetensors/safetensors"
)

const (
	indexPath     = "/model.safetensors.index.json"
	recordingPath = "/model.opened"

	tensorSize = 1 << 20 // bytes
)

// A checkpoint has equal shards.
type checkpoint struct {
	shards, tensors int // tensors in each shard
}

func (c checkpoint) shardPath(i int) string {
	return fmt.Sprintf("/model-%05d-of-%05d.safetensors", i+1, c.shards)
}

func (c checkpoint) tensor(shard, i int) string {
	return fmt.Sprintf("layers.%d.experts.%d.w", shard, i)
}

// header returns the header of a shard, of matrices of 1 MiB.
func (c checkpoint) header(shard int) ([]byte, error) {
	h := safetensors.Header{Tensors: make([]safetensors.TensorInfo, c.tensors)}
	for i := range h.Tensors {
		h.Tensors[i] = safetensors.TensorInfo{Name: c.tensor(shard, i), DType: safetensors.BF16, Shape: []int{512, 1024}}
	}
	return h.AppendBinary(nil)
}

// index returns the index without blanks: with the usual ones, a million tensors
// exceed the limit of 64 MiB.
func (c checkpoint) index() []byte {
	b := []byte(`{"weight_map":{`)
	for shard := range c.shards {
		for i := range c.tensors {
			b = fmt.Appendf(b, `"%s":"%s",`, c.tensor(shard, i), c.shardPath(shard)[1:])
		}
	}
	return append(b[:len(b)-1], `}}`...)
}

// limits are those of the server.
type limits struct {
	latency time.Duration
	rate    int // requests per second; 0: no limit
}

// A bucket serves a checkpoint. Data is computed.
type bucket struct {
	headers   map[string][]byte // of the shards, by path
	dataSize  int64             // of each shard
	index     []byte
	recording []byte // for the step replay
	now       func() time.Time

	mu      sync.Mutex
	limits  limits
	tokens  float64 // requests that may come at once, up to those of a tenth of a second
	filled  time.Time
	total   int // requests
	refused int
	sent    int64 // bytes
}

func newBucket(c checkpoint) (*bucket, error) {
	b := &bucket{headers: make(map[string][]byte), dataSize: int64(c.tensors) * tensorSize, index: c.index(), now: time.Now}
	for i := range c.shards {
		h, err := c.header(i)
		if err != nil {
			return nil, err
		}
		b.headers[c.shardPath(i)] = h
	}
	return b, nil
}

// restrict sets the limits. It returns the counts since the last call.
func (b *bucket) restrict(l limits) (total, refused int, sent int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	total, refused, sent = b.total, b.refused, b.sent
	b.limits, b.total, b.refused, b.sent = l, 0, 0, 0
	b.tokens, b.filled = float64(l.rate)/10, b.now()
	return total, refused, sent
}

// admit reports whether a request is within the rate, after the latency.
func (b *bucket) admit() bool {
	b.mu.Lock()
	b.total++
	latency, admitted := b.limits.latency, true
	if rate := float64(b.limits.rate); rate > 0 {
		now := b.now()
		b.tokens = min(b.tokens+now.Sub(b.filled).Seconds()*rate, max(rate/10, 1))
		b.filled = now
		if admitted = b.tokens >= 1; admitted {
			b.tokens--
		} else {
			b.refused++
		}
	}
	b.mu.Unlock()
	time.Sleep(latency)
	return admitted
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !b.admit() {
		http.Error(w, "SlowDown", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("ETag", `"1"`)
	w.Header().Set("Content-Type", "application/octet-stream")
	var content io.ReadSeeker
	switch h, isShard := b.headers[r.URL.Path]; {
	case isShard:
		content = io.NewSectionReader(shard(h), 0, int64(len(h))+b.dataSize)
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
	c.bucket.sent += int64(n)
	c.bucket.mu.Unlock()
	return n, err
}
