package remote_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"sync"
	"sync/atomic"
	"testing/fstest"

	"github.com/gosafetensors/safetensors/remote"
)

// A replay answers a request from memory if it has the answer, and passes it to base otherwise. If
// keep is true, it passes every request to base, and stores the answers.
type replay struct {
	base    http.RoundTripper
	keep    bool
	answers *sync.Map // maps a URL with a range to the bytes of the answer, as HTTP transmits it
}

func (t replay) RoundTrip(r *http.Request) (*http.Response, error) {
	request := r.URL.String() + " " + r.Header.Get("Range")
	if kept, ok := t.answers.Load(request); ok && !t.keep {
		return http.ReadResponse(bufio.NewReader(bytes.NewReader(kept.([]byte))), r)
	}
	resp, err := t.base.RoundTrip(r)
	if err != nil || !t.keep || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent {
		return resp, err
	}
	maps.DeleteFunc(resp.Header, func(name string, _ []string) bool { // keeps only the fields that a rank needs, and so no cookies
		return !slices.Contains([]string{"Content-Encoding", "Content-Range", "Etag", "Last-Modified"}, name)
	})
	kept, err := httputil.DumpResponse(resp, true)
	if err != nil {
		resp.Body.Close()
		return nil, err
	}
	t.answers.Store(request, kept)
	return resp, nil
}

// Hundreds of ranks open a checkpoint of many shards. The program that wrote it opens it once, and
// stores the answers as one object next to the checkpoint. Every rank reads that object, and opens
// the checkpoint without further requests. The ETag in an answer pins a shard to the version that
// it had.
func ExampleClient_replay() {
	shards := fstest.MapFS{"model.safetensors.index.json": {Data: []byte(`{"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}`)}}
	shards["1.safetensors"], shards["2.safetensors"] = file("a"), file("b")
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.FileServerFS(shards).ServeHTTP(w, r)
	}))
	defer server.Close()
	ctx, url := context.Background(), server.URL+"/model.safetensors.index.json"

	var answers sync.Map                       // a program encodes it, for example with encoding/gob
	for _, keep := range []bool{true, false} { // first the writer, then a rank
		client := &remote.Client{HTTP: &http.Client{Transport: replay{http.DefaultTransport, keep, &answers}}}
		f, err := client.Open(ctx, url)
		if err != nil {
			log.Fatal(err)
		}
		defer f.Close()
		fmt.Println(f, "opened by", requests.Swap(0), "requests")
	}
	// Output:
	// 2 tensors, 96 bytes opened by 3 requests
	// 2 tensors, 96 bytes opened by 0 requests
}
