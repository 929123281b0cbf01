package hub_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/hub"
)

// serve serves files by path, on the loopback interface.
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

// file returns a file with one tensor, F32 [4,3], of the values 0 to 11.
func file(name string) []byte {
	return encode(name, []int{4, 3}, []float32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
}

// encode returns a file with one tensor.
func encode(name string, shape []int, data []float32) []byte {
	t, err := safetensors.NewTensor(safetensors.F32, shape, data)
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

	f, err := hub.Open(context.Background(), "owner/name", "main")
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

func ExampleOpenFile() {
	server := serve(map[string][]byte{
		"/owner/pipeline/resolve/main/vae/diffusion_pytorch_model.safetensors": file("decoder"),
		"/owner/pipeline/resolve/main/unet/diffusion_pytorch_model.safetensors.index.json": []byte(`{"weight_map":{
			"down": "diffusion_pytorch_model-00001-of-00002.safetensors",
			"up": "diffusion_pytorch_model-00002-of-00002.safetensors"}}`),
		"/owner/pipeline/resolve/main/unet/diffusion_pytorch_model-00001-of-00002.safetensors": file("down"),
		"/owner/pipeline/resolve/main/unet/diffusion_pytorch_model-00002-of-00002.safetensors": file("up"),
	})
	defer server.Close()
	client := &hub.Client{Endpoint: server.URL} // without it, the Hugging Face Hub

	for _, name := range []string{
		"vae/diffusion_pytorch_model.safetensors",
		"unet/diffusion_pytorch_model.safetensors.index.json",
	} {
		f, err := client.OpenFile(context.Background(), "owner/pipeline", "main", name)
		if err != nil {
			log.Fatal(err)
		}
		defer f.Close()
		for tensor := range f.Tensors() {
			fmt.Println(name, tensor)
		}
	}
	// Output:
	// vae/diffusion_pytorch_model.safetensors decoder
	// unet/diffusion_pytorch_model.safetensors.index.json down
	// unet/diffusion_pytorch_model.safetensors.index.json up
}

// A model that the Python tools have downloaded is opened without a request.
// Other models come from the hub.
func ExampleCacheDir() {
	cache, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(cache)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	for name, data := range map[string][]byte{
		"refs/main": []byte(commit),
		"snapshots/" + commit + "/model.safetensors": file("cached"),
	} {
		path := filepath.Join(cache, "models--owner--name", filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			log.Fatal(err)
		}
	}
	server := serve(map[string][]byte{"/owner/other/resolve/main/model.safetensors": file("remote")})
	defer server.Close()
	os.Setenv("HF_HUB_CACHE", cache) // without it, the folder that Python uses
	defer os.Unsetenv("HF_HUB_CACHE")
	client := &hub.Client{Endpoint: server.URL}

	open := func(repo string) (*safetensors.File, error) {
		dir, err := hub.CacheDir(repo, "main")
		if errors.Is(err, fs.ErrNotExist) {
			return client.Open(context.Background(), repo, "main")
		}
		if err != nil {
			return nil, err
		}
		return safetensors.Open(dir)
	}
	for _, repo := range []string{"owner/name", "owner/other"} {
		f, err := open(repo)
		if err != nil {
			log.Fatal(err)
		}
		defer f.Close()
		for name := range f.Tensors() {
			fmt.Println(repo, name)
		}
	}
	// Output:
	// owner/name cached
	// owner/other remote
}
