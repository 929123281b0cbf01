package dcp_test

import (
	"fmt"
	"log"
	"maps"
	"os"
	"path/filepath"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/dcp"
)

// The checkpoint that four ranks of a PyTorch job have saved becomes a single file.
func ExampleOpen() {
	f, err := dcp.Open("testdata/mesh")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	t, err := f.Tensor("layers.0.weight")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t)

	// Read two of its columns. Only the pieces that have these columns are read.
	columns, err := t.Slice(safetensors.All(), safetensors.Span(2, 4))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(safetensors.Append[float32](nil, columns))

	// Write the whole checkpoint to one file, in constant memory.
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	err = safetensors.WriteFile(filepath.Join(dir, "model.safetensors"), maps.Collect(f.Tensors()), f.Metadata())
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// F32 [5,7]
	// [3 4 10 11 17 18 24 25 31 32] <nil>
}

// A checkpoint of four ranks is cut for three. Each of the three ranks runs this code with its own
// number. PyTorch and Open read the resulting directory.
func ExampleWriteFile() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const ranks = 3
	for rank := range ranks { // in a real job, each rank is a process of its own
		if err := resaveRank("testdata/mesh", dir, rank, ranks); err != nil {
			log.Fatal(err)
		}
	}

	entries, err := os.ReadDir(dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		f, err := safetensors.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			log.Fatal(err)
		}
		defer f.Close()
		t, err := f.Tensor("embed.weight")
		fmt.Println(e.Name(), t, err)
	}
	f, err := dcp.Open(dir)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fmt.Println(f.Tensor("embed.weight"))
	// Output:
	// shard-00001-model-00001-of-00001.safetensors BF16 [2,4] <nil>
	// shard-00002-model-00001-of-00001.safetensors BF16 [2,4] <nil>
	// shard-00003-model-00001-of-00001.safetensors BF16 [2,4] <nil>
	// BF16 [6,4] <nil>
}

// resaveRank opens a checkpoint, and saves one rank's rows of its tensors to a directory.
func resaveRank(from, to string, rank, ranks int) error {
	f, err := dcp.Open(from)
	if err != nil {
		return err
	}
	defer f.Close()
	pieces := make(map[string]dcp.Piece)
	for name, t := range f.Tensors() {
		p, err := dcp.NewPiece(t)
		if err != nil {
			return err
		}
		if len(t.Shape()) > 0 { // scalars stay whole
			if p, err = p.Shard(0, rank, ranks); err != nil {
				return err
			}
		}
		pieces[name] = p
	}
	return dcp.WriteFile(filepath.Join(to, dcp.FileName(rank)), pieces, f.Metadata())
}
