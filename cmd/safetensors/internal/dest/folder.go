package dest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// A folder is a folder of this machine with one file, or with several shards and their index.
type folder struct {
	name     string
	maxBytes int64
	align    int // alignment of the data buffer in files with tensors, or 0
	created  *created
}

// Folder returns the local folder called name as a destination. Parse would take a name such as
// x.safetensors for a file; Folder does not.
func Folder(name string) Shared { return folder{name: name, created: new(created)} }

func (f folder) Free() error {
	if err := checkCache(f.name); err != nil {
		return err
	}
	return free(f, f.maxBytes)
}

// IsCheckpoint reports whether a file in a folder belongs to a checkpoint, judging by its name.
func IsCheckpoint(name string) bool {
	return strings.HasSuffix(name, ".safetensors") || strings.HasSuffix(name, ".safetensors.index.json")
}

// Write uses WriteShards for the temporary files and the commit.
func (f folder) Write(tensors map[string]safetensors.Tensor, metadata map[string]string, last func() error) error {
	return f.replace(nil, func() error {
		return safetensors.Saver{Align: f.align, Check: last}.WriteShards(f.name, tensors, metadata, f.maxBytes)
	})
}

// Copy also removes the files that WriteShards would remove: temporary files, and shards with the stem
// of the new model that no checkpoint needs. The caller must have locked the folder.
func (f folder) Copy(s Shard, last func() error) error {
	f.Sweep()
	there, err := f.Files("", false)
	if err != nil {
		return err
	}
	var shards []string
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if _, numbered := variant.ParseShard(name); numbered && modelOf(name) == modelOf(format.ModelFile) {
			shards = append(shards, name)
		}
	}
	return f.replace(shards, func() error {
		path, err := f.place(format.ModelFile)
		if err != nil {
			return err
		}
		return copyFile(path, osfile.Settings{Tag: osfile.SaverTag, Check: last}, s)
	})
}

// replace calls save to write a checkpoint, and then removes the files of an earlier checkpoint as a Set
// does, because WriteShards does not recognize all of them by their names. It also removes the files in
// shards, except those that are part of another checkpoint.
func (f folder) replace(shards []string, save func() error) error {
	s := &Set{}
	there, err := s.files(f)
	if err != nil {
		return err
	}
	earlier, stale, others, err := s.before(f, there)
	if err != nil {
		return err
	}
	replaced := slices.Concat(earlier, stale)
	for _, name := range shards {
		if !slices.Contains(replaced, name) && !slices.Contains(others, name) {
			replaced = append(replaced, name)
		}
	}
	if err = s.begin(f, replaced, nil, there); err == nil {
		err = save()
	}
	var left *osfile.Leftover
	if errors.As(err, &left) {
		replaced = slices.DeleteFunc(replaced, func(name string) bool { return slices.Contains(left.Names, name) })
	} else if err != nil {
		if _, found := there[recordName]; !found {
			remove(f, []string{recordName})
		}
		return err
	}
	if !s.records {
		return err
	}
	return errors.Join(err, s.endSaved(f, replaced, err != nil))
}

// endSaved is end for a checkpoint that a Saver has written. If keep is true, the record stays for the next Set.
func (s *Set) endSaved(f folder, replaced []string, keep bool) error {
	s.records = !keep
	now, err := f.Open()
	if err != nil {
		return fmt.Errorf("the new checkpoint in %s is complete, but cannot be opened to distinguish its files from those of an earlier one: %w", term.Name(f.name), err)
	}
	defer now.Close()
	shards := slices.Collect(maps.Keys(maps.Collect(now.Headers())))
	if len(shards) > 1 {
		s.Index = format.IndexFile
	}
	return s.end(f, replaced, shards)
}
