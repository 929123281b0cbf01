// Scale measures how a group of ranks opens one large checkpoint in a bucket. The
// bucket is an HTTP server on the loopback interface that computes what it serves,
// takes some time for each request, and refuses requests above a rate, as buckets do.
// Each rank is a goroutine with connections of its own.
//
//	go run ./cmd/scale -shards 1000 -tensors 1000 -ranks 8 -steps all,replay
//
// It prints a table for bench/cluster/RESULTS.md; doc/cluster.md says what the steps are.
package main

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
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/examples/replay"
	"github.com/gosafetensors/safetensors/remote"
)

func main() {
	var c checkpoint
	var l limits
	flag.IntVar(&c.shards, "shards", 1000, "number of shards")
	flag.IntVar(&c.tensors, "tensors", 1000, "number of tensors in each shard, of 1 MiB")
	ranks := flag.Int("ranks", 8, "number of ranks that start at once")
	flag.DurationVar(&l.latency, "latency", 30*time.Millisecond, "time that the server takes for each request")
	flag.IntVar(&l.rate, "rate", 5500, "requests per second that the server accepts; 0: all")
	pace := flag.Duration("pace", 0, "time between two requests of a rank in step all; 0: as soon as it can")
	steps := flag.String("steps", "all,index,own,replay", "what to measure, separated by commas")
	flag.Parse()
	if err := run(os.Stdout, c, l, *ranks, *pace, strings.Split(*steps, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// A step opens what one rank of several needs. It returns what to keep.
type step func(ctx context.Context, url string, rank, ranks int) ([]*safetensors.File, error)

func run(w io.Writer, c checkpoint, l limits, ranks int, pace time.Duration, names []string) error {
	b, err := newBucket(c)
	if err != nil {
		return err
	}
	server := httptest.NewServer(b)
	defer server.Close()
	steps := map[string]step{"all": openAll(pace), "index": openByIndex, "own": c.openOwn, "replay": openReplayed}
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', tabwriter.AlignRight|tabwriter.Debug)
	fmt.Fprintln(t, "step\tranks\trequests\trefused\tMB sent\tseconds\tMB of heap per rank\tfailed ranks\t")
	for _, name := range names {
		open := steps[name]
		if open == nil {
			return fmt.Errorf("no step is named %q", name)
		}
		if name == "replay" && b.recording == nil {
			if b.recording, err = record(server.URL); err != nil {
				return err
			}
		}
		b.restrict(l)
		m := measure(server.URL, ranks, open)
		requests, refused, sent := b.restrict(limits{})
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%.1f\t%.2f\t%.1f\t%d\t\n", name, ranks, requests, refused, float64(sent)/1e6,
			m.duration.Seconds(), float64(m.heap)/1e6/float64(ranks), len(m.errs))
		if len(m.errs) > 0 {
			defer fmt.Fprintf(w, "%s: %v\n", name, m.errs[0])
		}
	}
	return t.Flush()
}

// A measurement is what the opening of all ranks took.
type measurement struct {
	duration time.Duration
	heap     int64   // bytes that the opened files keep
	errs     []error // of the ranks that failed
}

// measure lets all ranks open at once and waits for the last.
func measure(url string, ranks int, open step) (m measurement) {
	before := heap()
	kept := make([][]*safetensors.File, ranks)
	var mu sync.Mutex
	var all sync.WaitGroup
	start := time.Now()
	for rank := range ranks {
		all.Add(1)
		go func() {
			defer all.Done()
			files, err := open(context.Background(), url, rank, ranks)
			mu.Lock()
			defer mu.Unlock()
			if kept[rank] = files; err != nil {
				m.errs = append(m.errs, err)
			}
		}()
	}
	all.Wait()
	m.duration = time.Since(start)
	m.heap = heap() - before
	runtime.KeepAlive(kept)
	return m
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
func openAll(pace time.Duration) step {
	return func(ctx context.Context, url string, _, _ int) ([]*safetensors.File, error) {
		c := new(remote.Client)
		if pace > 0 {
			t := http.DefaultTransport.(*http.Transport).Clone()
			t.MaxIdleConnsPerHost = 20
			c.HTTP = &http.Client{Transport: &paced{RoundTripper: t, pace: pace}}
		}
		f, err := c.Open(ctx, url+indexPath)
		return []*safetensors.File{f}, err
	}
}

// A paced transport lets time pass between two requests.
type paced struct {
	http.RoundTripper
	pace time.Duration

	mu   sync.Mutex
	next time.Time // when the next request may be sent
}

func (p *paced) RoundTrip(r *http.Request) (*http.Response, error) {
	p.mu.Lock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	wait := p.next.Sub(now)
	p.next = p.next.Add(p.pace)
	p.mu.Unlock()
	time.Sleep(wait)
	return p.RoundTripper.RoundTrip(r)
}

// openOwn opens each shard on one rank, without the index.
func (c checkpoint) openOwn(ctx context.Context, url string, rank, ranks int) (files []*safetensors.File, err error) {
	for i := rank; i < c.shards; i += ranks {
		f, err := remote.Open(ctx, url+c.shardPath(i))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// openByIndex opens each shard on one rank, which finds it in the index.
func openByIndex(ctx context.Context, url string, rank, ranks int) (files []*safetensors.File, err error) {
	body, err := get(url + indexPath)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	index, err := safetensors.ReadIndex(body)
	if err != nil {
		return nil, err
	}
	shards := make(map[string]bool)
	for _, shard := range index.Shards {
		shards[shard] = true
	}
	for i, shard := range slices.Sorted(maps.Keys(shards)) {
		if i%ranks != rank {
			continue
		}
		f, err := remote.Open(ctx, url+"/"+shard)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// openReplayed opens all shards by their index, from the recorded answers.
func openReplayed(ctx context.Context, url string, _, _ int) ([]*safetensors.File, error) {
	body, err := get(url + recordingPath)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	t := new(replay.Transport)
	if err := t.Decode(body); err != nil {
		return nil, err
	}
	f, err := (&remote.Client{HTTP: &http.Client{Transport: t}}).Open(ctx, url+indexPath)
	return []*safetensors.File{f}, err
}

// get requests a whole object until the server accepts it.
func get(url string) (io.ReadCloser, error) {
	for range 100 {
		resp, err := http.Get(url)
		if err != nil {
			return nil, err
		}
		if resp.StatusCode == http.StatusOK {
			return resp.Body, nil
		}
		resp.Body.Close()
		time.Sleep(100 * time.Millisecond)
	}
	return nil, errors.New("the server is busy")
}

// record opens the checkpoint once, for the step replay.
func record(url string) ([]byte, error) {
	t := &replay.Transport{Keep: true}
	f, err := (&remote.Client{HTTP: &http.Client{Transport: t}}).Open(context.Background(), url+indexPath)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var b bytes.Buffer
	err = t.Encode(&b)
	return b.Bytes(), err
}
