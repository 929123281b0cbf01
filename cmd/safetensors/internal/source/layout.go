package source

import (
	"cmp"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
)

// A Layout is how files hold a checkpoint.
type Layout struct {
	Shards map[string]string // the file of each tensor
	Index  string            // the name of the index; "" if there is none

	// Files are the shards and the index. Plain says that they are safetensors, which can be
	// copied as they are: whoever opens a folder with these names finds them.
	Files []storage.File
	Plain bool
}

// layoutOf returns the layout of a checkpoint that was opened by a name, from files; nil if the
// names of its shards are not known.
func layoutOf(f *safetensors.File, name string, opened []storage.File) *Layout {
	l := &Layout{Shards: make(map[string]string), Plain: true}
	lone := format.ModelFile // the name of a file that has none
	if len(opened) == 1 {
		lone = opened[0].Name
	}
	shards := make(map[string]bool) // and whether they were opened
	folded := make(map[string]bool) // as systems do that know no capitals
	for shard, h := range f.Headers() {
		shard = cmp.Or(shard, lone)
		shards[shard] = false
		folded[strings.ToLower(shard)] = true
		for _, t := range h.Tensors {
			l.Shards[t.Name] = shard
		}
		l.Plain = l.Plain && isSafetensors(shard)
	}
	for _, file := range opened {
		_, known := shards[file.Name]
		switch {
		case known:
			shards[file.Name] = true
		case storage.IsIndex(file.Name) || storage.IsTorchIndex(file.Name):
			l.Index = file.Name
		default: // opened by way of trial
			continue
		}
		l.Files = append(l.Files, file)
	}
	for _, found := range shards {
		if !found {
			return nil
		}
	}
	_, single := shards[format.ModelFile]
	if l.Index == "" && name != "." || l.Index != "" && single {
		l.Plain = false // an index of some other name, or one that only its own name opens
	}
	l.Plain = l.Plain && len(folded) == len(shards)
	return l
}
