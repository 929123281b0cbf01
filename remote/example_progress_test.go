package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"sync/atomic"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
)

// A transport is a natural place to watch a download: it sees every request and
// counts the bytes of each answer. The context stops the download at any moment.
func ExampleClient_progress() {
	server := serve(fstest.MapFS{"model.safetensors": encode("weight", []int{1024, 1024}, make([]float32, 1<<20))})
	defer server.Close()

	transport := &progress{base: http.DefaultTransport}
	client := &remote.Client{HTTP: &http.Client{Transport: transport}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f, err := client.Open(ctx, server.URL+"/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	weight, err := f.Tensor("weight")
	if err != nil {
		log.Fatal(err)
	}

	transport.bytes.Store(0) // those of the header
	for i := range 2 {
		half, err := weight.Slice(safetensors.Span(i*512, (i+1)*512))
		if err != nil {
			log.Fatal(err)
		}
		if _, err = half.WriteTo(io.Discard); errors.Is(err, context.Canceled) {
			fmt.Println("stopped")
			break
		} else if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%d of %d bytes\n", transport.bytes.Load(), weight.Size())
		cancel() // as a signal or another goroutine would
	}
	// Output:
	// 2097152 of 4194304 bytes
	// stopped
}

// A progress transport counts the bytes that arrive.
type progress struct {
	base  http.RoundTripper
	bytes atomic.Int64
}

func (p *progress) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := p.base.RoundTrip(req)
	if err == nil {
		resp.Body = &counted{resp.Body, &p.bytes}
	}
	return resp, err
}

type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}
