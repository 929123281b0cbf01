package source

import (
	"cmp"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
)

// A Layout is how files hold a checkpoint.
type Layout struct {
	Shards map[string]string // the file of each tensor
	Index  string            // the name of the index; "" if there is none

	// Files are the shards and the index, nil if these can only be read as tensors. Plain says
	// that they are safetensors, which can be copied as they are.
	Files []File
	Plain bool
}

// layoutOf returns the layout of a checkpoint that was opened from files; nil if the names of
// its shards are not known.
func layoutOf(f *safetensors.File, files []File) *Layout {
	l := new(Layout)
	shards := make(map[string]bool)
	var names []string
	l.Shards, names, l.Plain = shardsOf(f)
	for _, shard := range names {
		shards[shard] = true
	}
	for _, file := range files {
		switch {
		case shards[file.Name]:
			delete(shards, file.Name)
		case IsIndex(file.Name) || IsTorchIndex(file.Name):
			l.Index = file.Name
		default: // opened by way of trial
			continue
		}
		l.Files = append(l.Files, file)
	}
	if len(shards) > 0 {
		return nil
	}
	return l
}

// shardsOf returns the shard of each tensor, the shards, and whether all are safetensors. A file
// that has no name is model.safetensors of a server.
func shardsOf(f *safetensors.File) (of map[string]string, shards []string, plain bool) {
	of, plain = make(map[string]string), true
	for shard, h := range f.Headers() {
		shard = cmp.Or(shard, format.ModelFile)
		shards = append(shards, shard)
		for _, t := range h.Tensors {
			of[t.Name] = shard
		}
		plain = plain && isSafetensors(shard)
	}
	return of, shards, plain
}

var errChanged = errors.New("has changed since it was opened")

// CopyTo writes the whole file. It is an error if that is no longer what it was when the source
// was opened, or not what the hub says.
func (f File) CopyTo(w io.Writer) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	var sum hash.Hash
	if f.Hub != nil {
		sum = f.Hub.Hash(f.Size)
		w = io.MultiWriter(w, sum)
	}
	n, err := io.Copy(w, r)
	switch {
	case err != nil:
	case f.Hub != nil && !f.Hub.Matches(sum.Sum(nil)):
		err = fmt.Errorf("%s does not have the sum that the hub gives", f.Name)
	case f.Size >= 0 && n != f.Size:
		err = fmt.Errorf("%s %w: %d bytes, was %d bytes", f.Name, errChanged, n, f.Size)
	}
	return err
}
