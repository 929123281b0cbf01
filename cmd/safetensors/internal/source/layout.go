package source

import (
	"errors"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors"
)

// A Layout is how files hold a checkpoint.
type Layout struct {
	Shards map[string]string // the file of each tensor
	Index  string            // the name of the index; "" if there is none

	// Files are the shards and the index. Plain says that they are safetensors, which can be
	// copied as they are.
	Files []File
	Plain bool
}

// layoutOf returns the layout of a checkpoint that was opened from files; nil if the names of
// its shards are not known.
func layoutOf(f *safetensors.File, files []File) *Layout {
	l := &Layout{Shards: make(map[string]string), Plain: true}
	shards := make(map[string]bool)
	for shard, h := range f.Headers() {
		shards[shard] = true
		for _, t := range h.Tensors {
			l.Shards[t.Name] = shard
		}
		l.Plain = l.Plain && isSafetensors(shard)
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

var errChanged = errors.New("has changed since it was opened")

// CopyTo writes the whole file. It is an error if that is no longer what it was when the source
// was opened.
func (f File) CopyTo(w io.Writer) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(w, r)
	if err == nil && n != f.Size {
		err = fmt.Errorf("%s %w: %d bytes, was %d bytes", f.Name, errChanged, n, f.Size)
	}
	return err
}
