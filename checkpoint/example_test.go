package checkpoint_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"log"
	"os"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
)

// model is a directory with a file of one tensor.
func model() fs.FS {
	x, err := safetensors.NewTensor(safetensors.F32, []int{2}, []float32{1, 2})
	if err != nil {
		log.Fatal(err)
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, map[string]safetensors.Tensor{"x": x}, nil); err != nil {
		log.Fatal(err)
	}
	return fstest.MapFS{"model.safetensors": {Data: file.Bytes()}}
}

func ExampleOpenFS() {
	f, err := checkpoint.OpenFS(model(), ".")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	x, err := f.Tensor("x")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.DType(), x.Shape())
	// Output: F32 [2]
}

func ExampleOpen() {
	f, err := checkpoint.Open("no such directory")
	if err != nil {
		fmt.Println("cannot be opened")
		return
	}
	defer f.Close()
	// Output: cannot be opened
}

func ExampleModels() {
	pipeline := fstest.MapFS{
		"model_index.json":                         {Data: []byte(`{"unet": ["diffusers", "UNet2DModel"], "scheduler": ["diffusers", "DDIMScheduler"]}`)},
		"unet/diffusion_pytorch_model.safetensors": {},
		"scheduler/scheduler_config.json":          {},
	}
	dirs, err := checkpoint.Models(pipeline, ".")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(dirs)
	// Output: [unet]
}

func ExampleCheck() {
	folder := fstest.MapFS{
		"model.safetensors.index.json": {Data: []byte(`{"weight_map": {"x": "model-00001-of-00001.safetensors"}}`)},
	}
	findings, err := checkpoint.Check(folder, ".")
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	// Output: missing: the index "model.safetensors.index.json" names "model-00001-of-00001.safetensors", which is not there
}

// A directory of this machine is checked after its model was saved.
func ExampleCheck_directory() {
	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, model()); err != nil {
		log.Fatal(err)
	}
	findings, err := checkpoint.Check(os.DirFS(dir), ".")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(findings), "findings")
	// Output: 0 findings
}

func ExampleVersion() {
	before, err := checkpoint.Version(model(), ".")
	if err != nil {
		log.Fatal(err)
	}
	after, err := checkpoint.Version(model(), ".")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(before == after)
	// Output: true
}
