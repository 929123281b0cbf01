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
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/hub"
)

// serve serves files on the loopback interface.
func serve(files fstest.MapFS) *httptest.Server {
	return httptest.NewServer(http.FileServerFS(files))
}

// file returns a file with one tensor, F32 [4,3].
func file(name string) *fstest.MapFile {
	t, err := safetensors.NewTensor(safetensors.F32, []int{4, 3}, make([]float32, 12))
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
	server := serve(fstest.MapFS{
		"owner/name/resolve/main/model.safetensors.index.json": {Data: []byte(`{"weight_map":{
			"a": "model-00001-of-00002.safetensors",
			"b": "model-00002-of-00002.safetensors"}}`)},
		"owner/name/resolve/main/model-00001-of-00002.safetensors": file("a"),
		"owner/name/resolve/main/model-00002-of-00002.safetensors": file("b"),
	})
	defer server.Close()
	os.Setenv("HF_ENDPOINT", server.URL) // the default is the Hugging Face Hub
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

// OpenFile opens one component of a pipeline, which may consist of many shards.
func ExampleOpenFile() {
	const unet = "owner/pipeline/resolve/main/unet/diffusion_pytorch_model"
	server := serve(fstest.MapFS{
		unet + ".safetensors.index.json": {Data: []byte(`{"weight_map":{
			"down": "diffusion_pytorch_model-00001-of-00002.safetensors",
			"up": "diffusion_pytorch_model-00002-of-00002.safetensors"}}`)},
		unet + "-00001-of-00002.safetensors": file("down"),
		unet + "-00002-of-00002.safetensors": file("up"),
	})
	defer server.Close()
	client := &hub.Client{Endpoint: server.URL} // the default is the Hugging Face Hub

	f, err := client.OpenFile(context.Background(), "owner/pipeline", "main", "unet/diffusion_pytorch_model.safetensors.index.json")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f)
	// Output: 2 tensors, 96 bytes
}

// A model that the Python tools have downloaded is opened without a request.
func ExampleCacheDir() {
	cache, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(cache)
	const commit = "0123456789abcdef0123456789abcdef01234567"
	err = os.CopyFS(filepath.Join(cache, "models--owner--name"), fstest.MapFS{
		"refs/main": {Data: []byte(commit)},
		"snapshots/" + commit + "/model.safetensors": file("cached"),
	})
	if err != nil {
		log.Fatal(err)
	}
	os.Setenv("HF_HUB_CACHE", cache) // by default, the cache is the directory that Python uses
	defer os.Unsetenv("HF_HUB_CACHE")

	for _, repo := range []string{"owner/name", "owner/other"} {
		dir, err := hub.CacheDir(repo, "main")
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Println(repo, "has not been downloaded: hub.Open can open it")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		f, err := safetensors.Open(dir)
		if err != nil {
			log.Fatal(err)
		}
		defer f.Close()
		fmt.Println(repo, f)
	}
	// Output:
	// owner/name 1 tensor, 48 bytes
	// owner/other has not been downloaded: hub.Open can open it
}

// FS returns a repository as a file system, for functions of other packages that take one.
func ExampleClient_FS() {
	server := serve(fstest.MapFS{
		"api/models/owner/name/revision/main": {Data: []byte(`{"sha": "0123456789abcdef0123456789abcdef01234567", "siblings": [
			{"rfilename": "README.md"}, {"rfilename": "unet/diffusion_pytorch_model.safetensors"}]}`)},
		"owner/name/resolve/0123456789abcdef0123456789abcdef01234567/unet/diffusion_pytorch_model.safetensors": file("a"),
	})
	defer server.Close()

	client := &hub.Client{Endpoint: server.URL}
	fsys, err := client.FS(context.Background(), "owner/name", "main")
	if err != nil {
		log.Fatal(err)
	}
	f, err := safetensors.OpenFS(fsys, "unet")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f)
	// Output: 1 tensor, 48 bytes
}
