package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/bench/cluster"
	"github.com/gosafetensors/safetensors/remote"
	"github.com/stretchr/testify/require"
)

// What BenchmarkOpen opens.
var (
	shardsFlag  = flag.Int("shards", 6, "number of shards")
	tensorsFlag = flag.Int("tensors", 10, "number of tensors of 1 MiB in each shard")
	ranksFlag   = flag.Int("ranks", 3, "number of ranks that start at once")
	latencyFlag = flag.Duration("latency", 0, "time that the server takes for each request")
	rateFlag    = flag.Int("rate", 0, "requests per second that the server accepts; 0: all")
	paceFlag    = flag.Duration("pace", 0, "time between two requests of a rank in step all; 0: as soon as it can")
)

const (
	indexPath     = "/model.safetensors.index.json"
	recordingPath = "/model.opened"
)

// A bucket serves a checkpoint of equal shards over HTTP. It takes some time for each
// request and refuses requests above a rate, as buckets do.
type bucket struct {
	objects map[string]object // by path
	shards  []string          // their paths
	etag    string
	latency time.Duration
	rate    int // requests per second; 0: no limit

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

// An object is a text, and zeros after it.
type object struct {
	text []byte
	size int
}

func (o object) ReadAt(p []byte, off int64) (int, error) {
	clear(p[copy(p, o.text[min(int(off), len(o.text)):]):])
	return len(p), nil
}

// serve starts a server for a checkpoint of shards with tensors of 1 MiB.
func serve(shards, tensors int) (b *bucket, url string, stop func()) {
	b = &bucket{objects: make(map[string]object), etag: `"1"`}
	index := []byte(`{"weight_map":{`) // without the usual blanks: with them, a million tensors exceed the limit of 64 MiB
	for i := range shards {
		shard := fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, shards)
		h := safetensors.Header{Tensors: make([]safetensors.TensorInfo, tensors)}
		for k := range h.Tensors {
			name := fmt.Sprintf("layers.%d.experts.%d.w", i, k)
			h.Tensors[k] = safetensors.TensorInfo{Name: name, DType: safetensors.BF16, Shape: []int{512, 1024}}
			index = fmt.Appendf(index, `"%s":"%s",`, name, shard)
		}
		text, err := h.AppendBinary(nil)
		if err != nil {
			panic(err)
		}
		b.objects["/"+shard] = object{text, len(text) + tensors<<20}
		b.shards = append(b.shards, "/"+shard)
	}
	b.put(indexPath, append(index[:len(index)-1], "}}"...))
	s := httptest.NewServer(b)
	return b, s.URL, s.Close
}

func (b *bucket) put(path string, text []byte) { b.objects[path] = object{text, len(text)} }

// restart returns the counts since the last call, and lets the rate start again.
func (b *bucket) restart() counts {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.counts
	b.counts, b.tokens, b.filled = counts{}, float64(b.rate)/10, time.Now()
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
	now, rate := time.Now(), float64(b.rate)
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
	o, found := b.objects[r.URL.Path]
	switch {
	case !admitted:
		http.Error(w, "SlowDown", http.StatusServiceUnavailable)
	case !found:
		http.NotFound(w, r)
	default:
		w.Header().Set("ETag", b.etag)
		w.Header().Set("Content-Type", "application/octet-stream")
		http.ServeContent(w, r, "", time.Time{}, io.NewSectionReader(o, 0, int64(o.size)))
		sent, _ := strconv.ParseInt(w.Header().Get("Content-Length"), 10, 64)
		b.mu.Lock()
		b.counts.sent += sent
		b.mu.Unlock()
	}
}

// A step opens what one rank of several needs: doc/cluster.md says how. It returns what
// to keep.
type step func(b *bucket, url string, rank, ranks int) ([]*safetensors.File, error)

var steps = map[string]step{"all": openAll, "index": openByIndex, "own": openOwn, "replay": openReplayed}

// BenchmarkOpen measures how a group of ranks opens one large checkpoint in a bucket.
// Each rank is a goroutine with connections of its own. bench/cluster/RESULTS.md has the
// results of
//
//	go test -run '^$' -bench Open -benchtime 1x ./cluster -shards 1000 -tensors 1000 -ranks 8 -latency 30ms -rate 5500
func BenchmarkOpen(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		b.Run(name, func(b *testing.B) {
			served, url, stop := serve(*shardsFlag, *tensorsFlag)
			defer stop()
			if name == "replay" {
				require.NoError(b, served.record(url))
			}
			served.latency, served.rate = *latencyFlag, *rateFlag
			served.restart()
			before := heap()
			var files []*safetensors.File
			for b.Loop() {
				var err error
				files, err = openOnAll(served, url, *ranksFlag, steps[name])
				require.NoError(b, err)
			}
			c, n := served.restart(), float64(b.N)
			b.ReportMetric(float64(c.requests)/n, "requests")
			b.ReportMetric(float64(c.refused)/n, "refused")
			b.ReportMetric(float64(c.sent)/n/1e6, "MB-sent")
			b.ReportMetric(float64(heap()-before)/1e6/float64(*ranksFlag), "MB-heap/rank")
			runtime.KeepAlive(files)
		})
	}
}

// TestRequests checks the numbers of requests in doc/cluster.md.
func TestRequests(t *testing.T) {
	b, url, stop := serve(6, 10)
	defer stop()
	require.NoError(t, b.record(url))
	for name, want := range map[string]int{
		"all":    21, // three times an index and six shards
		"index":  9,  // three times the index, each shard once
		"own":    6,  // each shard once
		"replay": 3,  // one object for each rank
	} {
		b.restart()
		files, err := openOnAll(b, url, 3, steps[name])
		require.NoError(t, err, name)
		require.Equal(t, want, b.restart().requests, name)
		seen := make(map[string]bool)
		for _, f := range files {
			for tensor := range f.Tensors() {
				seen[tensor] = true
			}
		}
		require.Len(t, seen, 60, name)
	}
}

// openOnAll lets all ranks open at once and waits for the last.
func openOnAll(b *bucket, url string, ranks int, open step) ([]*safetensors.File, error) {
	kept, errs := make([][]*safetensors.File, ranks), make([]error, ranks)
	var all sync.WaitGroup
	for rank := range ranks {
		all.Add(1)
		go func() {
			defer all.Done()
			kept[rank], errs[rank] = open(b, url, rank, ranks)
		}()
	}
	all.Wait()
	return slices.Concat(kept...), errors.Join(errs...)
}

func heap() int64 {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	runtime.GC()
	runtime.GC() // frees what a pool or a finalizer kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// openAll opens all shards by their index.
func openAll(_ *bucket, url string, _, _ int) ([]*safetensors.File, error) {
	c := new(remote.Client)
	if *paceFlag > 0 {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 20
		c.HTTP = &http.Client{Transport: &paced{RoundTripper: t}}
	}
	f, err := c.Open(context.Background(), url+indexPath)
	return []*safetensors.File{f}, err
}

// A paced transport lets time pass before each request.
type paced struct {
	http.RoundTripper
	mu sync.Mutex
}

func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	time.Sleep(*paceFlag)
	p.mu.Unlock()
	return p.RoundTripper.RoundTrip(r)
}

// openOwn opens each shard on one rank, without the index.
func openOwn(b *bucket, url string, rank, ranks int) ([]*safetensors.File, error) {
	return openEach(url, rank, ranks, b.shards)
}

// openByIndex opens each shard on one rank, which finds it in the index.
func openByIndex(_ *bucket, url string, rank, ranks int) ([]*safetensors.File, error) {
	text, err := new(remote.Client).ReadFile(context.Background(), url+indexPath)
	if err != nil {
		return nil, err
	}
	index, err := safetensors.ReadIndex(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	shards := slices.Sorted(maps.Values(index.Shards))
	return openEach(url+"/", rank, ranks, slices.Compact(shards))
}

// openEach opens every ranks-th of the paths.
func openEach(url string, rank, ranks int, paths []string) (files []*safetensors.File, err error) {
	for i := rank; i < len(paths); i += ranks {
		f, err := remote.Open(context.Background(), url+paths[i])
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// openReplayed opens all shards by their index, from the recorded answers.
func openReplayed(_ *bucket, url string, _, _ int) ([]*safetensors.File, error) {
	recording, err := new(remote.Client).ReadFile(context.Background(), url+recordingPath)
	if err != nil {
		return nil, err
	}
	answers := new(cluster.Transport)
	if err := answers.Decode(bytes.NewReader(recording)); err != nil {
		return nil, err
	}
	f, err := open(answers, url+indexPath)
	return []*safetensors.File{f}, err
}

// record opens the checkpoint once and keeps the answers in the bucket.
func (b *bucket) record(url string) error {
	kept := &cluster.Transport{Keep: true}
	if _, err := open(kept, url+indexPath); err != nil {
		return err
	}
	var recording bytes.Buffer
	err := kept.Encode(&recording)
	b.put(recordingPath, recording.Bytes())
	return err
}

// open opens a checkpoint with a transport.
func open(t *cluster.Transport, url string) (*safetensors.File, error) {
	return (&remote.Client{HTTP: &http.Client{Transport: t}}).Open(context.Background(), url)
}
