package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
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
	"github.com/gosafetensors/safetensors/internal/variant"
)

// shardsOf returns the shards that a job writes to a folder: those of the source or new ones.
func (c *command) shardsOf(w *copyJob, dst dest.Shared) (*dest.Set, error) {
	set := &dest.Set{
		Parameters: w.parameters,
		Shards:     make(map[string]dest.Shard), Metadata: w.metadata, Force: w.force, Variant: c.variantOf(w.src),
		AtOnce: 2, Unchanged: w.unchanged, // two, because each shard may hold results of computed tensors
		CopyFiles: func() error { return w.copyFiles(dst) },
	}
	file, whole := w.wholeFile()
	switch {
	case whole && w.src.Layout == nil:
		set.Shards = map[string]dest.Shard{stemOf(w.src) + format.Safetensors.Endings[0]: unchangedShard(file)}
	case w.maxShardSize != "" || w.src.Layout == nil:
		maxBytes, _ := term.ParseBytes(w.maxShardSize) // 0 if the flag is not set
		set.Shards, set.Index = dest.Split(w.tensors, maxBytes, stemOf(w.src), c.variantOf(w.src))
		if err := w.wholeAdapter(len(set.Shards)); err != nil {
			return nil, err
		}
	case w.asItIs() && w.src.Layout.Plain:
		if err := c.copies(w, set, dst); err != nil {
			return nil, err
		}
	default:
		w.deal(set)
	}
	if set.Index == "" && len(set.Shards) == 1 {
		for name, shard := range set.Shards {
			set.Shards = map[string]dest.Shard{withoutNumber(name): shard}
		}
	}
	return set, nil
}

// withoutNumber returns the name of a single file for the name of a shard that is number 1 of 1: without an index, libraries do
// not open a shard. It returns any other name unchanged.
func withoutNumber(name string) string {
	if shard, numbered := variant.ParseShard(path.Base(name)); numbered && shard.IsOnly() {
		return path.Join(path.Dir(name), variant.FileName(shard.Stem, shard.Variant, format.Safetensors.Endings[0]))
	}
	return name
}

// wholeAdapter returns an error if the job would split an adapter into several shards, which peft does not open.
func (w *copyJob) wholeAdapter(shards int) error {
	if stem := stemOf(w.src); stem == adapterStem && shards > 1 {
		return fmt.Errorf("--max-shard-size %s would split the adapter into %d shards, and peft opens one file, %s.safetensors: leave out the flag", w.maxShardSize, shards, stem)
	}
	return nil
}

// asItIs reports whether no flag changes the tensors of the source, their names or the metadata.
func (w *copyJob) asItIs() bool {
	return !w.made && len(w.planned("with-files", "variant", "key")) == 0
}

// wholeFile returns the file of the source if that is a single safetensors file, and the copy has the
// same bytes.
func (w *copyJob) wholeFile() (file storage.File, ok bool) {
	files := w.src.Files
	if w.src.Layout != nil {
		files = w.src.Layout.Files
	}
	single := w.src.Format == format.Safetensors || w.src.Layout != nil && w.src.Layout.Plain && w.src.Layout.Index == ""
	if !w.asItIs() || !single || len(files) != 1 {
		return storage.File{}, false
	}
	return files[0], true
}

// unchangedShard returns a shard that is a copy of a file.
func unchangedShard(file storage.File) dest.Shard {
	return dest.Shard{CopyTo: file.CopyTo, Size: file.Size}
}

// save writes the copy to a destination: see dest.Destination.
func (w *copyJob) save(to dest.Destination, last func() error) error {
	file, whole := w.wholeFile()
	if copier, ok := dest.CopierTo(to); ok && whole {
		return copier.Copy(unchangedShard(file), last)
	}
	return to.Write(w.tensors, w.metadata, last)
}

// readFor returns the number of bytes that save reads.
func (w *copyJob) readFor(to dest.Destination) int64 {
	file, whole := w.wholeFile()
	if _, ok := dest.CopierTo(to); ok && whole && file.Size >= 0 {
		return file.Size
	}
	return w.read
}

// copies adds the files of the source to set, unchanged. It marks files that the destination has
// already: they are recognized by checksum if both sides have one, and otherwise by the record of
// an earlier copy.
func (c *command) copies(w *copyJob, set *dest.Set, dst dest.Shared) error {
	files := w.src.Layout.Files
	sums := !storage.IsURL(dst.PathOf(".")) && !slices.ContainsFunc(files, func(f storage.File) bool { return f.Path == "" && f.Hub == nil })
	if set.AtOnce, set.Sums = 0, sums; !sums {
		set.Record = recordOf(files)
	}
	for _, file := range files {
		if file.Name != w.src.Layout.Index {
			name := file.Name
			if len(files) == 1 {
				name = withoutNumber(name)
			}
			there, err := false, error(nil)
			if sums {
				there, err = c.found(file, dst.PathOf(name))
			}
			if err != nil {
				return err
			}
			set.Shards[name] = dest.Shard{CopyTo: file.CopyTo, Size: file.Size, There: there, Source: sourceOf(file)}
			continue
		}
		var text bytes.Buffer
		if err := file.CopyTo(&text); err != nil {
			return err
		}
		set.Index, set.Text = file.Name, text.Bytes()
	}
	if set.Index == "" && len(set.Shards) > 1 {
		return w.makeIndex(set)
	}
	return nil
}

// makeIndex adds an index for copied shards without an index, because other loaders would not find
// the model.
func (w *copyJob) makeIndex(set *dest.Set) error {
	headers := make(map[string]*safetensors.Header)
	for name, shard := range w.src.Layout.Shards {
		if headers[shard] == nil {
			headers[shard] = &safetensors.Header{Metadata: w.src.Metadata}
		}
		t := w.src.Tensors[name]
		headers[shard].Tensors = append(headers[shard].Tensors, safetensors.TensorInfo{Name: name, DType: t.DType(), Shape: t.Shape()})
	}
	text, err := dest.IndexOf(headers, w.parameters)
	set.Index, set.Text = w.indexName(), text
	return err
}

// indexName returns the name of the index for shards that keep their names in the source.
func (w *copyJob) indexName() string {
	of := ""
	for _, shard := range w.src.Layout.Shards {
		if s, ok := variant.ParseShard(shard); ok && s.Variant != "" {
			of = s.Variant
		}
	}
	return variant.IndexName(stemOf(w.src), of, ".safetensors")
}

// recordOf returns the present sizes and tags of files. It returns nil if a file can change without
// a sign.
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

// deal assigns each tensor to the shard of the source that holds it, or that holds the tensor it
// was made from. The shards keep their names, unless some shards are left without tensors or are in
// another format.
func (w *copyJob) deal(set *dest.Set) {
	stored := w.src.Layout.Shards
	originals, names := slices.Sorted(maps.Keys(stored)), slices.Sorted(maps.Keys(w.origin))
	if len(w.tensors) == 0 {
		set.Shards[variant.FileName(stemOf(w.src), set.Variant, ".safetensors")] = dest.Shard{}
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
		set.Shards, set.Index = dest.Numbered(set.Shards, stemOf(w.src), set.Variant)
	}
	if set.Index == "" && len(set.Shards) > 1 {
		set.Index = w.indexName()
	}
}

// found reports whether a local file is a copy of a file of the source, by comparing their
// checksums.
func (c *command) found(file storage.File, path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && file.Size >= 0 && info.Size() != file.Size {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	there := storage.File{Name: term.Name(path), Path: path, Size: info.Size(), Open: func() (io.ReadCloser, error) {
		f, _, err := osfile.OpenRegular(path)
		return c.opener.Meter(f, term.Name(path)), err
	}}
	if file.Hub != nil {
		sums, err := c.hashFiles([]storage.File{there}, 0, func(storage.File) hash.Hash { return file.Hub.Hash(file.Size) })
		return err == nil && file.Hub.Matches(sums[0][0]), err
	}
	sums, err := c.hashFiles([]storage.File{file, there}, 0, func(storage.File) hash.Hash { return sha256.New() })
	return err == nil && bytes.Equal(sums[0][0], sums[1][0]), err
}

// nearest returns the one of some sorted names that has the longest common prefix with name. A
// tensor made from quantised ones has a name near theirs.
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

// adapterStem is the stem in the names of the files of peft.
const adapterStem = "adapter_model"

// variantOf returns the variant that is selected in a source: the files of a copy get names of this variant. It returns "" for
// the default files of a model that lacks the variant.
func (c *command) variantOf(src *source.Checkpoint) string {
	if c.opener.IgnoresVariant(src.Name) {
		return ""
	}
	return c.opener.Variant
}

// stemOf returns the stem of the names of new shards. It is the stem that diffusers or peft uses,
// if the source has such files, and otherwise "model", as with transformers.
func stemOf(src *source.Checkpoint) string {
	for _, stem := range []string{adapterStem, "diffusion_pytorch_model"} {
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

// sourceOf returns the Source that lets an interrupted copy of a file continue. It is nil if the file is of this
// machine, or if nothing identifies its content.
func sourceOf(file storage.File) *dest.Source {
	if file.Content() == "" {
		return nil
	}
	s := &dest.Source{Content: file.Content(), CopyFrom: file.CopyFrom}
	if file.Hub != nil {
		s.NewHash = func() hash.Hash { return file.Hub.Hash(file.Size) }
		s.Matches = file.Hub.Matches
	}
	return s
}
