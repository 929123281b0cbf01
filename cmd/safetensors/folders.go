package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"hash"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

func (c *command) copyFolder(w *copyJob, dst dest.Shared) error {
	set := &dest.Set{
		Shards: make(map[string]dest.Shard), Metadata: w.metadata, Force: w.force,
		AtOnce: 2, Unchanged: w.src.Unchanged, // each shard may hold some results
		CopyFiles: func() error { return w.copyFiles(dst) },
	}
	asItIs := len(w.planned("with-files", "variant", "key")) == 0
	switch {
	case w.maxShardSize != "" || w.src.Layout == nil:
		maxBytes, _ := term.ParseBytes(w.maxShardSize) // 0 if it is not set
		set.Shards, set.Index = dest.Split(w.tensors, maxBytes, stemOf(w.src))
	case asItIs && w.src.Layout.Plain:
		if err := c.copies(w, set, dst); err != nil {
			return err
		}
	default:
		w.deal(set)
	}
	defer c.progress("cp", w.read)()
	return set.Write(dst)
}

// copies has the files of the source copied as they are, unless they are there: by their sums if
// both are at hand, or else by a record.
func (c *command) copies(w *copyJob, set *dest.Set, dst dest.Shared) error {
	files := w.src.Layout.Files
	sums := !storage.IsURL(dst.PathOf(".")) && !slices.ContainsFunc(files, func(f storage.File) bool { return f.Path == "" && f.Hub == nil })
	if set.AtOnce, set.Sums = 0, sums; !sums {
		set.Record = recordOf(files)
	}
	for _, file := range files {
		if file.Name != w.src.Layout.Index {
			set.Shards[file.Name] = dest.Shard{CopyTo: file.CopyTo, Size: file.Size, There: sums && c.found(file, dst.PathOf(file.Name))}
			continue
		}
		var text bytes.Buffer
		if err := file.CopyTo(&text); err != nil {
			return err
		}
		set.Index, set.Text = file.Name, text.Bytes()
	}
	return nil
}

// recordOf returns the sizes and tags of files as they are now; nil if nothing tells whether they
// change.
func recordOf(files []storage.File) []byte {
	var pins []storage.Pin
	for _, file := range files {
		if file.Tag == "" || file.Size < 0 {
			return nil
		}
		pins = append(pins, storage.Pin{Name: file.Name, Size: file.Size, Tag: file.Tag})
	}
	record, _ := json.Marshal(pins)
	return record
}

// deal puts each tensor into the shard that has it in the source, or what it is made of. The names
// of the shards stay, unless some have no tensor left or are of another format.
func (w *copyJob) deal(set *dest.Set) {
	stored := w.src.Layout.Shards
	originals, names := slices.Sorted(maps.Keys(stored)), slices.Sorted(maps.Keys(w.origin))
	if len(w.tensors) == 0 {
		set.Shards[format.ModelFile] = dest.Shard{}
	}
	for name, t := range w.tensors {
		shard := stored[nearest(w.origin[nearest(name, names)], originals)]
		if set.Shards[shard].Tensors == nil {
			set.Shards[shard] = dest.Shard{Tensors: make(map[string]safetensors.Tensor)}
		}
		set.Shards[shard].Tensors[name] = t
	}
	set.Index = w.src.Layout.Index
	files := slices.Compact(slices.Sorted(maps.Values(stored)))
	if !w.src.Layout.Plain || len(set.Shards) < len(files) {
		set.Shards, set.Index = dest.Numbered(set.Shards, stemOf(w.src))
	}
}

// found reports whether a local file is a copy of one of the source, by their sums.
func (c *command) found(file storage.File, path string) bool {
	info, err := os.Stat(path)
	if err != nil || file.Size >= 0 && info.Size() != file.Size {
		return false
	}
	there := storage.File{Path: path, Size: info.Size(), Open: func() (io.ReadCloser, error) {
		f, _, err := osfile.OpenRegular(path)
		return f, err
	}}
	if file.Hub != nil {
		sums, err := c.hashFiles([]storage.File{there}, 0, func(storage.File) hash.Hash { return file.Hub.Hash(file.Size) })
		return err == nil && file.Hub.Matches(sums[0][0])
	}
	sums, err := c.hashFiles([]storage.File{file, there}, 0, func(storage.File) hash.Hash { return sha256.New() })
	return err == nil && bytes.Equal(sums[0][0], sums[1][0])
}

// nearest returns which of some sorted names has most of its start in common with a name: what a
// quantised tensor is made of, or is made into.
func nearest(name string, sorted []string) (best string) {
	common := func(a, b string) (n int) {
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		return n
	}
	i, _ := slices.BinarySearch(sorted, name)
	for _, near := range sorted[max(i-1, 0):min(i+1, len(sorted))] {
		if best == "" || common(near, name) > common(best, name) {
			best = near
		}
	}
	return best
}

// stemOf returns the start of the names of new shards: what diffusers or peft would give the shards
// of a source, or "model", as transformers does.
func stemOf(src *source.Checkpoint) string {
	for _, stem := range []string{"adapter_model", "diffusion_pytorch_model"} {
		starts := func(f storage.File) bool {
			name := path.Base(f.Name)
			return strings.HasPrefix(name, stem+".") || strings.HasPrefix(name, stem+"-")
		}
		if slices.ContainsFunc(src.Files, starts) {
			return stem
		}
	}
	return format.Stem
}
