package remote_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/remote"
)

// serve serves files by their path, on the loopback interface.
func serve(files map[string][]byte) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "model.safetensors", time.Time{}, bytes.NewReader(file))
	}))
}

// file returns a file of one tensor, [4, 3] of F32, that holds 0 to 11.
func file(name string) []byte {
	t, err := safetensors.NewTensor(safetensors.F32, []int{4, 3}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, map[string]safetensors.Tensor{name: t}, nil); err != nil {
		log.Fatal(err)
	}
	return b.Bytes()
}

func ExampleOpen() {
	server := serve(map[string][]byte{"/model.safetensors": file("embedding")})
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

func ExampleOpenRepo() {
	server := serve(map[string][]byte{
		"/owner/name/resolve/main/model.safetensors.index.json": []byte(`{"weight_map":{
			"a": "model-00001-of-00002.safetensors",
			"b": "model-00002-of-00002.safetensors"}}`),
		"/owner/name/resolve/main/model-00001-of-00002.safetensors": file("a"),
		"/owner/name/resolve/main/model-00002-of-00002.safetensors": file("b"),
	})
	defer server.Close()
	os.Setenv("HF_ENDPOINT", server.URL) // without it, the Hugging Face Hub
	defer os.Unsetenv("HF_ENDPOINT")

	f, err := remote.OpenRepo(context.Background(), "owner/name", "main")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for name, t := range f.Tensors() {
		fmt.Println(name, t.DType(), t.Shape())
	}
	fmt.Println(f.ParameterCount())
	// Output:
	// a F32 [4 3]
	// b F32 [4 3]
	// map[F32:24]
}

// A private file server, with a header of its own and a time limit on each
// answer to begin.
func ExampleClient() {
	server := serve(map[string][]byte{"/model.safetensors": file("t")})
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
