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

// A replay answers a request for which it has an answer from memory, and asks base for everything
// else. With keep, it asks base for everything, and keeps the answers.
type replay struct {
	base    http.RoundTripper
	keep    bool
	answers *sync.Map // []byte by URL and range: the responses as HTTP writes them
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
	maps.DeleteFunc(resp.Header, func(name string, _ []string) bool { // no cookie is kept
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

// Hundreds of ranks open a checkpoint of many shards. Whoever wrote it opens it once and keeps the
// answers. Every rank gets them, as one object next to the checkpoint, and opens it without a
// request of its own. The ETag in an answer pins a shard to the version that it had.
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

	var answers sync.Map                       // a program encodes it, such as by encoding/gob
	for _, keep := range []bool{true, false} { // the writer, a rank
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
