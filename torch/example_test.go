package torch_test

import (
	"bytes"
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/torch"
)

// Open opens a file, an index or, as here, a directory.
func ExampleOpen() {
	f, err := torch.Open("testdata/folders/one")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	for name, t := range f.Tensors() {
		fmt.Println(name, t)
	}
	// Output:
	// a.t F32 [3,2]
	// a BF16 [2,3]
}

// This converts a file of PyTorch to safetensors.
func ExampleOpen_convert() {
	dir, err := os.MkdirTemp("", "torch")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, "model.safetensors")

	f, err := torch.Open("testdata/module.pt")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	err = safetensors.WriteFile(to, maps.Collect(f.Tensors()), f.Metadata())
	fmt.Println(f.Len(), err)
	// Output: 18 <nil>
}

// A checkpoint of a training program holds the state of the optimizer next to the weights. Keys lists
// the dicts in it, and Opener selects one.
func ExampleOpener() {
	data, err := os.ReadFile("testdata/optimizer.pt")
	if err != nil {
		log.Fatal(err)
	}
	keys, err := torch.Keys(bytes.NewReader(data), int64(len(data)))
	fmt.Println(keys, err)

	f, err := torch.Opener{Key: "optimizer.state"}.NewFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		log.Fatal(err)
	}
	for name, t := range f.Tensors() {
		fmt.Println(name, t)
	}
	// Output:
	// [before before.defaults before.config.b before.config.b.0 state_dict optimizer.state optimizer.state.0 optimizer.state.1] <nil>
	// 0.exp_avg F32 [3,2]
	// 0.exp_avg_sq F32 [3,2]
	// 0.step F32 []
	// 1.exp_avg F32 [3]
	// 1.exp_avg_sq F32 [3]
	// 1.step F32 []
}
