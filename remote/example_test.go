package remote_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing/fstest"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
)

// serve serves files on the loopback interface.
func serve(files fstest.MapFS) *httptest.Server {
	return httptest.NewServer(http.FileServerFS(files))
}

// file returns a file with one tensor, F32 [4,3], whose elements are 0 to 11.
func file(name string) *fstest.MapFile {
	t, err := safetensors.NewTensor(safetensors.F32, []int{4, 3}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, map[string]safetensors.Tensor{name: t}, nil); err != nil {
		log.Fatal(err)
	}
	return &fstest.MapFile{Data: b.Bytes()}
}

func ExampleOpen() {
	server := serve(fstest.MapFS{"model.safetensors": file("embedding")})
	defer server.Close()

	f, err := remote.Open(context.Background(), server.URL+"/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	embedding, err := f.Tensor("embedding")
	if err != nil {
		log.Fatal(err)
	}
	rows, err := embedding.Slice(safetensors.Span(1, 3))
	if err != nil {
		log.Fatal(err)
	}
	values, err := safetensors.Append[float32](nil, rows)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(rows.DType(), rows.Shape(), values)
	// Output: F32 [2 3] [3 4 5 6 7 8]
}

// A Client opens a file on a private server, with a header for authorization and a time limit for
// the start of each answer.
func ExampleClient() {
	server := serve(fstest.MapFS{"model.safetensors": file("t")})
	defer server.Close()

	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 20
	transport.ResponseHeaderTimeout = 5 * time.Second
	client := &remote.Client{
		HTTP:   &http.Client{Transport: transport},
		Header: http.Header{"Authorization": {"Basic dXNlcjpwYXNz"}},
	}
	f, err := client.Open(context.Background(), server.URL+"/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	var names []string
	for name := range f.Tensors() {
		names = append(names, name)
	}
	fmt.Println(names)
	// Output: [t]
}

// A container registry holds a model as an artifact of the CNCF ModelPack specification. Each layer
// of the manifest is a file that is neither packed nor compressed, and has a URL of its own. The
// token is a token of the registry.
func ExampleClient_registry() {
	weights := file("embedding").Data
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(weights))
	server := serve(fstest.MapFS{
		"v2/llama/blobs/" + digest: {Data: weights},
		"v2/llama/manifests/step-2000": {Data: []byte(`{"layers": [{
			"mediaType": "application/vnd.cncf.model.weight.v1.raw", "digest": "` + digest + `",
			"annotations": {"org.cncf.model.filepath": "model.safetensors"}}]}`)},
	})
	defer server.Close()

	ctx, repository := context.Background(), server.URL+"/v2/llama"
	client := &remote.Client{Header: http.Header{
		"Authorization": {"Bearer token"}, "Accept": {"application/vnd.oci.image.manifest.v1+json"},
	}}
	text, err := client.ReadFile(ctx, repository+"/manifests/step-2000")
	if err != nil {
		log.Fatal(err)
	}
	var manifest struct {
		Layers []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		log.Fatal(err)
	}
	for _, layer := range manifest.Layers {
		f, err := client.Open(ctx, repository+"/blobs/"+layer.Digest)
		if err != nil {
			log.Fatal(err)
		}
		defer f.Close()
		fmt.Println(layer.Annotations["org.cncf.model.filepath"], f)
	}
	// Output: model.safetensors 1 tensor, 48 bytes
}

// Rank 1 of 2 reads its rows of every tensor. Each read waits for an answer of the server, so many
// goroutines read concurrently. 48 goroutines were at least as fast as a plan that merges the reads
// of all tensors.
func ExampleOpen_rank() {
	server := serve(fstest.MapFS{"model.safetensors": file("embedding")})
	defer server.Close()
	f, err := remote.Open(context.Background(), server.URL+"/model.safetensors")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()

	values := make(map[string][]float32)
	var mu sync.Mutex // guards values
	var wait sync.WaitGroup
	places := make(chan struct{}, 48)
	for name, t := range f.Tensors() {
		wait.Add(1)
		places <- struct{}{}
		go func() {
			defer wait.Done()
			defer func() { <-places }()
			rows, err := t.Part(0, 1, 2)
			if err != nil {
				log.Fatal(err)
			}
			read, err := safetensors.Append[float32](nil, rows)
			if err != nil {
				log.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			values[name] = read
		}()
	}
	wait.Wait()
	fmt.Println(values)
	// Output: map[embedding:[6 7 8 9 10 11]]
}
