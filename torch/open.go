package torch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// endings are the endings of files of torch.save.
var endings = variant.Endings{".bin", ".pt", ".pth", ".ckpt"}

// open opens a file, an index or a folder.
func (o Opener) open(in osfile.Tree, name string) (*safetensors.File, error) {
	isDir, err := in.IsDir(name)
	if err != nil {
		return nil, prefix.OpenError(name, err)
	}
	if isDir {
		found, err := findModel(in, name)
		if err != nil {
			return nil, prefix.OpenError(name, err)
		}
		if len(found) > 1 {
			f, err := o.openSet(in, name, found)
			return f, prefix.OpenError(name, err)
		}
		name = in.Join(name, found[0])
	}
	if endings.IsIndex(name) {
		f, err := o.openIndex(in, name)
		return f, prefix.OpenError(name, err)
	}
	c, file, err := o.openFile(in, name, newOperation())
	if err != nil {
		return nil, err
	}
	return c.file(file.Close)
}

// findModel returns the name of the file or the index that holds the model of a folder, or the
// files of a set of shards without an index.
func findModel(in osfile.Tree, dir string) ([]string, error) {
	entries, err := fs.ReadDir(in.FS, dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	files, indexes := endings.Among(names)
	all := append(indexes, files...)
	state := slices.ContainsFunc(all, variant.IsState)
	all = slices.DeleteFunc(all, variant.IsState)
	usual := variant.TorchModels()
	for _, name := range usual {
		if slices.Contains(all, name) {
			return []string{name}, nil
		}
	}
	switch {
	case len(all) == 0 && state:
		return nil, prefix.Absent{Err: errors.New("only the state of a training job is in it, no model")}
	case len(all) == 0:
		return nil, prefix.Absent{Err: fmt.Errorf("no file of PyTorch in it (%s)%s", strings.Join(endings, ", "), packageIn(names))}
	case len(all) > 1 && isRanks(all):
		return nil, fmt.Errorf("it has the files of several ranks of a job, such as %.200q; package dcp joins them", all[0])
	case len(indexes) == 0:
		n, missing := variant.SetOf(all, maxShards)
		switch {
		case len(missing) > 0:
			return nil, prefix.Absent{Err: errors.New(variant.MissingShards(n, missing, quote))}
		case len(all) == n || len(all) == 1:
			return all, nil
		}
	case len(indexes) == 1:
		return indexes, nil
	}
	return nil, &variant.Several{Usual: usual[0], Names: all, List: variant.List(all, 10, quote)}
}

// quote quotes a name, and shortens a long one.
func quote(name string) string { return fmt.Sprintf("%.200q", name) }

// isRanks reports whether the names are those of files that ranks of a job have saved.
func isRanks(names []string) bool {
	ranks, err := variant.RankFiles(names)
	return err != nil && !errors.As(err, new(*variant.NumberedError)) || len(ranks) > 0 && ranks[0].Sure
}

// packageIn returns advice that names the package for a folder without a file of torch.save, or "".
func packageIn(names []string) string {
	for _, name := range names {
		switch path.Ext(name) {
		case ".safetensors":
			return "; package safetensors reads " + quote(name)
		case ".distcp", ".metadata":
			return "; package dcp reads the distributed checkpoint"
		}
	}
	return ""
}

// openFile returns the contents of a file. The file stays open unless there is an error. A file
// that is not an io.ReaderAt is read into memory.
func (o Opener) openFile(in osfile.Tree, name string, all *operation) (*contents, io.Closer, error) {
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
	if osfile.NameOf(r) == "" {
		r = osfile.NamedReader{ReaderAt: r, File: name}
	}
	var c *contents
	if err == nil {
		c, err = o.read(r, size, all)
	}
	if err != nil {
		file.Close()
		return nil, nil, prefix.OpenError(name, err)
	}
	return c, file, nil
}

// maxShards is the largest number of shards in a set without an index.
const maxShards = 10_000

// openSet opens the files of a set of shards as one File.
func (o Opener) openSet(in osfile.Tree, dir string, names []string) (*safetensors.File, error) {
	all := newOperation()
	var files []*safetensors.File
	fail := func(err error) (*safetensors.File, error) {
		for _, f := range files {
			f.Close()
		}
		return nil, err
	}
	for _, name := range names {
		c, file, err := o.openFile(in, in.Join(dir, name), all)
		if err != nil {
			return fail(err)
		}
		f, err := c.file(file.Close)
		if err != nil {
			file.Close()
			return fail(err)
		}
		files = append(files, f)
	}
	f, err := safetensors.Join(files...)
	if err != nil {
		return fail(prefix.Strip(err))
	}
	return f, nil
}

// openIndex opens the files of an index as one File.
func (o Opener) openIndex(in osfile.Tree, name string) (*safetensors.File, error) {
	index, _, err := osfile.OpenFS(in.FS, name)
	if err != nil {
		return nil, err
	}
	defer index.Close()
	var mu sync.Mutex
	skipped := make(map[string]bool)
	if skip := o.Skip; skip != nil {
		o.Skip = func(name string, why error) { // several files may call it concurrently
			mu.Lock()
			defer mu.Unlock()
			skipped[name] = true
			skip(name, why)
		}
	}
	all := newOperation()
	atOnce := make(chan struct{}, pickles)
	f, err := safetensors.OpenShards(index, func(shard string) (*safetensors.File, error) {
		atOnce <- struct{}{}
		defer func() { <-atOnce }()
		c, file, err := o.openFile(in, in.Join(name, "..", shard), all)
		if err != nil {
			return nil, err
		}
		for _, name := range c.skipped { // the shard must have all tensors that the index assigns to it
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
