package replay_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/examples/replay"
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

// A step opens what one rank of several needs: doc/cluster.md says how. It returns what
// to keep.
type step func(b *bucket, url string, rank, ranks int) ([]*safetensors.File, error)

var steps = map[string]step{"all": openAll, "index": openByIndex, "own": openOwn, "replay": openReplayed}

// BenchmarkOpen measures how a group of ranks opens one large checkpoint in a bucket.
// Each rank is a goroutine with connections of its own. bench/cluster/RESULTS.md has the
// results of
//
//	go test -run '^$' -bench Open -benchtime 1x ./examples/replay -shards 1000 -tensors 1000 -ranks 8 -latency 30ms -rate 5500
func BenchmarkOpen(b *testing.B) {
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		b.Run(name, func(b *testing.B) {
			served := &bucket{shards: *shardsFlag, tensors: *tensorsFlag}
			url, stop := served.serve()
			defer stop()
			if name == "replay" {
				require.NoError(b, served.record(url))
			}
			served.latency, served.rate = *latencyFlag, *rateFlag
			var total counts
			var kept int64
			for b.Loop() {
				b.StopTimer()
				before := heap()
				served.restart()
				b.StartTimer()
				files, err := openOnAll(served, url, *ranksFlag, steps[name])
				b.StopTimer()
				require.NoError(b, err)
				c := served.restart()
				total.requests, total.refused, total.sent = total.requests+c.requests, total.refused+c.refused, total.sent+c.sent
				kept += heap() - before
				runtime.KeepAlive(files)
				b.StartTimer()
			}
			n := float64(b.N)
			b.ReportMetric(float64(total.requests)/n, "requests")
			b.ReportMetric(float64(total.refused)/n, "refused")
			b.ReportMetric(float64(total.sent)/n/1e6, "MB-sent")
			b.ReportMetric(float64(kept)/n/1e6/float64(*ranksFlag), "MB-heap/rank")
		})
	}
}

// TestRequests checks the numbers of requests in doc/cluster.md.
func TestRequests(t *testing.T) {
	b := &bucket{shards: 6, tensors: 10}
	url, stop := b.serve()
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

// A paced transport lets time pass between two requests.
type paced struct {
	http.RoundTripper

	mu   sync.Mutex
	next time.Time // when the next request may be sent
}

func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	wait := max(time.Until(p.next), 0)
	p.next = time.Now().Add(wait + *paceFlag)
	p.mu.Unlock()
	time.Sleep(wait)
	return p.RoundTripper.RoundTrip(r)
}

// openOwn opens each shard on one rank, without the index.
func openOwn(b *bucket, url string, rank, ranks int) ([]*safetensors.File, error) {
	return openEach(url, rank, ranks, slices.Sorted(maps.Keys(b.headers)))
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
	paths := make(map[string]bool)
	for _, name := range index.Shards {
		paths["/"+name] = true
	}
	return openEach(url, rank, ranks, slices.Sorted(maps.Keys(paths)))
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
	answers := new(replay.Transport)
	if err := answers.Decode(bytes.NewReader(recording)); err != nil {
		return nil, err
	}
	f, err := open(answers, url+indexPath)
	return []*safetensors.File{f}, err
}

// record opens the checkpoint once and keeps the answers in the bucket.
func (b *bucket) record(url string) error {
	kept := &replay.Transport{Keep: true}
	if _, err := open(kept, url+indexPath); err != nil {
		return err
	}
	var object bytes.Buffer
	err := kept.Encode(&object)
	b.recording = object.Bytes()
	return err
}

// open opens a checkpoint with a transport.
func open(t *replay.Transport, url string) (*safetensors.File, error) {
	return (&remote.Client{HTTP: &http.Client{Transport: t}}).Open(context.Background(), url)
}
