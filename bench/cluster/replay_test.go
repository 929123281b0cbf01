package cluster_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/bench/cluster"
	"github.com/gosafetensors/safetensors/remote"
	"github.com/stretchr/testify/require"
)

func Example() {
	ctx := context.Background()
	server, url, stop := serve(50, 1)
	defer stop()

	// The writer of the checkpoint opens it once and puts the answers next to it.
	kept := &cluster.Transport{Keep: true}
	f, err := (&remote.Client{HTTP: &http.Client{Transport: kept}}).Open(ctx, url+indexPath)
	if err != nil {
		log.Fatal(err)
	}
	f.Close()
	var object bytes.Buffer
	if err := kept.Encode(&object); err != nil {
		log.Fatal(err)
	}
	fmt.Println("opened with", server.restart().requests, "requests")

	// Every rank gets the object, and opens the checkpoint without a request.
	answers := new(cluster.Transport)
	if err := answers.Decode(&object); err != nil {
		log.Fatal(err)
	}
	f, err = (&remote.Client{HTTP: &http.Client{Transport: answers}}).Open(ctx, url+indexPath)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println("opened with", server.restart().requests, "requests")
	t, err := f.Tensor("layers.7.experts.0.w")
	if err != nil {
		log.Fatal(err)
	}
	part, err := t.Part(0, 3, 8)
	if err != nil {
		log.Fatal(err)
	}
	values, err := safetensors.Append[float32](nil, part)
	fmt.Println("read", len(values), "values with", server.restart().requests, "request", err)
	// Output:
	// opened with 51 requests
	// opened with 0 requests
	// read 65536 values with 1 request <nil>
}

// TestReplaced checks that answers of a checkpoint that has been replaced give an
// error, not a mixture.
func TestReplaced(t *testing.T) {
	b, url, stop := serve(3, 1)
	defer stop()
	kept := &cluster.Transport{Keep: true}
	_, err := open(kept, url+indexPath)
	require.NoError(t, err)
	kept.Keep = false
	b.etag = `"2"`
	f, err := open(kept, url+indexPath)
	require.NoError(t, err)
	for _, x := range f.Tensors() {
		_, err := safetensors.Append[float32](nil, x)
		require.ErrorIs(t, err, remote.ErrChanged)
	}
}

// TestMiss checks that what has no answer is asked for, and what failed is not kept.
func TestMiss(t *testing.T) {
	b, url, stop := serve(3, 1)
	defer stop()
	kept := &cluster.Transport{Keep: true}
	for range 2 {
		_, err := open(kept, url+"/none.safetensors")
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	require.Equal(t, 2, b.restart().requests)
	var object bytes.Buffer
	require.NoError(t, kept.Encode(&object))
	answers := new(cluster.Transport)
	require.ErrorIs(t, answers.Decode(bytes.NewReader(object.Bytes()[:object.Len()-1])), io.ErrUnexpectedEOF)
	require.NoError(t, answers.Decode(&object))
	_, err := open(answers, url+indexPath)
	require.NoError(t, err)
	require.Equal(t, 1+3, b.restart().requests)
	require.Error(t, answers.Decode(bytes.NewReader([]byte("<html>"))))
}

// TestEncoded: a compressed answer stays one, so that remote refuses it as such. It is no
// broken file.
func TestEncoded(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write([]byte("\x1f\x8b"))
	}))
	defer s.Close()
	_, err := open(&cluster.Transport{Keep: true}, s.URL+"/model.safetensors")
	require.ErrorContains(t, err, `Content-Encoding "gzip"`)
}
