package torch

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// The names of a model's files, as transformers and peft give them.
const (
	modelFile   = "pytorch_model.bin"
	indexSuffix = ".index.json"
	adapterFile = "adapter_model.bin"
)

// endings are those of files of torch.save.
var endings = variant.Endings{".bin", ".pt", ".pth", ".ckpt"}

// open opens what Open takes: a file, an index or a folder.
func (o Opener) open(in osfile.Tree, name string) (*safetensors.File, error) {
	if in.IsDir(name) {
		found, err := findModel(in, name)
		if err != nil {
			return nil, prefix.OpenError(name, err)
		}
		name = in.Join(name, found)
	}
	if endings.IsIndex(name) {
		f, err := o.openIndex(in, name)
		return f, prefix.OpenError(name, err)
	}
	c, file, err := o.openFile(in, name)
	if err != nil {
		return nil, err
	}
	return c.file(file.Close)
}

// findModel returns which file in a folder is its model.
func findModel(in osfile.Tree, dir string) (string, error) {
	entries, err := fs.ReadDir(in.FS, dir)
	if err != nil {
		return "", err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	files, indexes := endings.Among(names)
	all := append(indexes, files...)
	for _, name := range []string{modelFile, modelFile + indexSuffix, adapterFile} {
		if slices.Contains(all, name) {
			return name, nil
		}
	}
	switch {
	case len(all) == 0:
		return "", fmt.Errorf("no file of PyTorch in it (%s): %w", strings.Join(endings, ", "), fs.ErrNotExist)
	case len(indexes) == 1 || len(all) == 1:
		return all[0], nil
	}
	return "", fmt.Errorf("no %s in it, and several others: %.200q", modelFile, all)
}

// openFile returns the contents of a file, which stays open unless there is an error. One
// that cannot be read by offset is read into memory.
func (o Opener) openFile(in osfile.Tree, name string) (*contents, io.Closer, error) {
	file, size, err := osfile.OpenFS(in.FS, name)
	if err != nil {
		return nil, nil, prefix.OpenError(name, err)
	}
	r, ok := file.(io.ReaderAt)
	if !ok {
		var data []byte
		data, err = io.ReadAll(file)
		r, size = bytes.NewReader(data), int64(len(data))
	}
	var c *contents
	if err == nil {
		c, err = o.read(r, size)
	}
	if err != nil {
		file.Close()
		return nil, nil, prefix.OpenError(name, err)
	}
	return c, file, nil
}

// openIndex opens the files of an index as one.
func (o Opener) openIndex(in osfile.Tree, name string) (*safetensors.File, error) {
	index, _, err := osfile.OpenFS(in.FS, name)
	if err != nil {
		return nil, err
	}
	defer index.Close()
	var mu sync.Mutex
	skipped := make(map[string]bool)
	if skip := o.Skip; skip != nil {
		o.Skip = func(name string, why error) { // files call it concurrently
			mu.Lock()
			defer mu.Unlock()
			skipped[name] = true
			skip(name, why)
		}
	}
	atOnce := make(chan struct{}, pickles)
	f, err := safetensors.OpenShards(index, func(shard string) (*safetensors.File, error) {
		atOnce <- struct{}{}
		defer func() { <-atOnce }()
		c, file, err := o.openFile(in, in.Join(name, "..", shard))
		if err != nil {
			return nil, err
		}
		for _, name := range c.skipped { // so that the shard has what the index places in it
			c.tensors[name], _ = safetensors.NewTensor(safetensors.U8, []int{0}, []byte{})
		}
		return c.file(file.Close)
	})
	if err != nil || len(skipped) == 0 {
		return f, prefix.Strip(err)
	}
	tensors := maps.Collect(f.Tensors())
	maps.DeleteFunc(tensors, func(name string, _ safetensors.Tensor) bool { return skipped[name] })
	return (&contents{tensors: tensors, metadata: f.Metadata()}).file(f.Close)
}

// pickles is how many of them are read concurrently: each may take half a gigabyte.
const pickles = 4
