package source

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
)

// A Layout is how files hold a checkpoint.
type Layout struct {
	Shards map[string]string // the file of each tensor
	Index  string            // the name of the index; "" if there is none

	// Files are the shards and the index, nil if these can only be read as tensors. Plain says
	// that they are safetensors, which can be copied as they are: whoever opens a folder with
	// these names finds them.
	Files []storage.File
	Plain bool
}

// layoutOf returns the layout of a checkpoint that was opened by a name, from files; nil if the
// names of its shards are not known.
func layoutOf(f *safetensors.File, name string, opened []storage.File) *Layout {
	l := new(Layout)
	shards := make(map[string]bool)
	var names []string
	lone := format.ModelFile
	if len(opened) == 1 {
		lone = opened[0].Name
	}
	l.Shards, names, l.Plain = shardsOf(f, lone)
	folded := make(map[string]bool) // as systems do that know no capitals
	for _, shard := range names {
		shards[shard] = true
		folded[strings.ToLower(shard)] = true
	}
	for _, file := range opened {
		switch {
		case shards[file.Name]:
			delete(shards, file.Name)
		case storage.IsIndex(file.Name) || storage.IsTorchIndex(file.Name):
			l.Index = file.Name
		default: // opened by way of trial
			continue
		}
		l.Files = append(l.Files, file)
	}
	if len(shards) > 0 {
		return nil
	}
	if l.Index == "" && name != "." || l.Index != "" && slices.Contains(names, format.ModelFile) {
		l.Plain = false // an index of some other name, or one that only its own name opens
	}
	l.Plain = l.Plain && len(folded) == len(names)
	return l
}

// shardsOf returns the shard of each tensor, the shards, and whether all are safetensors. A file
// that has no name is lone.
func shardsOf(f *safetensors.File, lone string) (of map[string]string, shards []string, plain bool) {
	of, plain = make(map[string]string), true
	for shard, h := range f.Headers() {
		shard = cmp.Or(shard, lone)
		shards = append(shards, shard)
		for _, t := range h.Tensors {
			of[t.Name] = shard
		}
		plain = plain && isSafetensors(shard)
	}
	return of, shards, plain
}
