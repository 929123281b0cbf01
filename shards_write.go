package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// WriteShards writes the shards of Split to a directory, which it creates if need be,
// each with the metadata, and an index of several.
//
// One step replaces an earlier checkpoint: the rename of the index or of the single
// shard. When several shards replace a single file, that step is its removal. After a
// failure or a crash, the directory opens as the earlier checkpoint or as the new one,
// each whole; an earlier set without an index may not open. Shard names are never
// reused: the stem gets a random number. Last, WriteShards removes the files of earlier
// and of crashed saves; an error then says that the new checkpoint is complete. A
// concurrent one fails; without locks, as on NFS, save one at a time. On Windows open
// files can be neither replaced nor removed.
func WriteShards(dir string, tensors map[string]Tensor, metadata map[string]string, maxBytes int64) error {
	return prefixed(writeShards(dir, Split(tensors, maxBytes), metadata))
}

func writeShards(dir string, shards map[string]map[string]Tensor, metadata map[string]string) error {
	s := shardSet{dir: dir, names: slices.Sorted(maps.Keys(shards))}
	defer s.abort()
	memory := new(resultPool)
	for _, name := range s.names {
		o, err := newOutFile(shards[name], metadata, memory)
		if err != nil {
			return err
		}
		s.out = append(s.out, o)
	}
	if s.computes() {
		for _, o := range s.out {
			o.release()
		}
	}
	if err := osfile.MkdirAll(dir); err != nil {
		return err
	}
	unlock, ok := osfile.Lock(dir)
	if !ok {
		return fmt.Errorf("another WriteShards is saving to %s", dir)
	}
	defer unlock()
	if err := osfile.RemoveTagged(dir, shardTag); err != nil { // they may fill the disk
		return err
	}
	if err := s.findEarlier(); err != nil {
		return err
	}
	if len(s.names) > 1 {
		s.rename()
		if err := s.addIndex(metadata); err != nil {
			return bare(err)
		}
	}
	if err := s.write(); err != nil {
		return err
	}
	return s.commit()
}

// addIndex adds the index of the shards, as one more file.
func (s *shardSet) addIndex(metadata map[string]string) error {
	x, err := NewIndex(func(yield func(string, *Header) bool) {
		for i, name := range s.names {
			if !yield(name, &Header{Metadata: metadata, Tensors: s.out[i].infos}) {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	text, err := x.AppendBinary(nil)
	s.names = append(s.names, indexFile)
	s.out = append(s.out, &outFile{header: text, bounds: []int64{0}})
	return err
}

// Split deals tensors out to shards of up to maxBytes bytes, by file name, in name
// order; a larger tensor is a shard. 0 or less is no limit. One is model.safetensors,
// several are model-00001-of-00003.safetensors.
func Split(tensors map[string]Tensor, maxBytes int64) map[string]map[string]Tensor {
	if maxBytes <= 0 {
		maxBytes = math.MaxInt64
	}
	groups := []map[string]Tensor{}
	current, size := map[string]Tensor{}, int64(0)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		n := t.Size()
		if n > maxBytes {
			groups = append(groups, map[string]Tensor{name: t})
			continue
		}
		if n > maxBytes-size {
			groups = append(groups, current)
			current, size = map[string]Tensor{}, 0
		}
		current[name] = t
		size += n
	}
	if len(current) > 0 || len(groups) == 0 {
		groups = append(groups, current)
	}
	if len(groups) == 1 {
		return map[string]map[string]Tensor{modelFile: groups[0]}
	}
	shards := make(map[string]map[string]Tensor, len(groups))
	for i, group := range groups {
		shards[fmt.Sprintf("%s-%05d-of-%05d%s", modelStem, i+1, len(groups), fileSuffix)] = group
	}
	return shards
}

// shardTag marks the temporary files of WriteShards, which alone saves to its folder:
// those that it finds are of saves that crashed.
const shardTag = "shards-"

// mostUnnamed is how many files have no name before all are complete, where the system
// can: each takes a descriptor until then, and a process may have 1,024.
const mostUnnamed = 256

// A shardSet is the files of a checkpoint that is being written.
type shardSet struct {
	dir     string
	earlier []string         // the files of an earlier checkpoint, in the order to remove them
	names   []string         // of the shards, and of their index
	out     []*outFile       // their contents; an index is a header without tensors
	files   []*osfile.Atomic // those created
}

// findEarlier lists the files of an earlier checkpoint, before those of the new one
// appear.
func (s *shardSet) findEarlier() error {
	entries, err := osfile.ReadDir(s.dir)
	for _, e := range entries {
		switch name := e.Name(); {
		case name == indexFile: // before the shards that it names
			s.earlier = slices.Insert(s.earlier, 0, name)
		case name == modelFile, ownShard(name):
			s.earlier = append(s.earlier, name)
		}
	}
	return err
}

// ownShard reports whether WriteShards gives such names to shards.
func ownShard(name string) bool {
	stem, _, _, ok := cutShardName(name)
	number, numbered := strings.CutPrefix(stem, modelStem+".")
	return ok && (stem == modelStem || numbered && number != "" && strings.Trim(number, "0123456789") == "")
}

// rename gives several shards names that no others have had, here or in a save that no
// lock kept out: with a random number, unless the directory has no earlier checkpoint.
func (s *shardSet) rename() {
	if len(s.earlier) == 0 {
		return
	}
	stem := fmt.Sprintf("%s.%d", modelStem, 1+rand.IntN(1_000_000_000))
	for i, name := range s.names {
		s.names[i] = stem + strings.TrimPrefix(name, modelStem)
	}
}

// computes reports whether some tensors are computed.
func (s *shardSet) computes() bool { return slices.ContainsFunc(s.out, (*outFile).computes) }

// write writes and flushes all files, an index after its shards.
func (s *shardSet) write() error {
	atOnce := 4 // one is flushed while another is written
	if s.computes() {
		atOnce = 2 // each holds some results
	}
	first, err := osfile.CreateTagged(filepath.Join(s.dir, s.names[0]), shardTag)
	if err != nil {
		return err
	}
	s.files = make([]*osfile.Atomic, len(s.names))
	s.files[0] = first
	write := func(i int64) (err error) {
		name, f := filepath.Join(s.dir, s.names[i]), first
		if i > 0 {
			if f, err = first.Another(name, i >= mostUnnamed); err != nil {
				return err
			}
			s.files[i] = f
		}
		if err := s.out[i].writeFile(f); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		return f.Finish()
	}
	last := int64(len(s.names) - 1)
	if err := parallel.Do(atOnce, last, write); err != nil {
		return err
	}
	return write(last)
}

// commit makes the finished files the checkpoint of the folder, and removes those of
// an earlier one.
func (s *shardSet) commit() error {
	last := s.names[len(s.names)-1]
	stale := slices.DeleteFunc(s.earlier, func(name string) bool { return name == last })
	dir, err := osfile.OpenDir(s.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := s.replace(dir, slices.Contains(stale, modelFile)); err != nil {
		for _, f := range s.files {
			f.TakeBack()
		}
		return err
	}
	err = dir.Sync()
	if err == nil {
		err = s.remove(stale) // not flushed: what comes back, the next save removes
	}
	if err != nil {
		return fmt.Errorf("the new checkpoint in %s is complete, but what follows failed: %w", s.dir, err)
	}
	return nil
}

// replace makes the folder open as the new checkpoint, by its last step: the rename
// of the last file or, since a folder with a single shard is opened by that, the
// removal of the single shard. By POSIX a later step may persist before an earlier
// one, unless the folder is flushed between them.
func (s *shardSet) replace(dir *osfile.Dir, single bool) error {
	last := len(s.files) - 1
	for _, f := range s.files[:last] {
		if err := f.Rename(); err != nil {
			return err
		}
	}
	if err := dir.Sync(); err != nil {
		return err
	}
	if err := s.files[last].Rename(); err != nil || !single {
		return err
	}
	if err := dir.Sync(); err != nil {
		return err
	}
	return s.remove([]string{modelFile})
}

// remove removes files from the folder, unless they are gone.
func (s *shardSet) remove(names []string) error {
	for _, name := range names {
		if err := osfile.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a file of an earlier checkpoint: %w", err)
		}
	}
	return nil
}

func (s *shardSet) abort() {
	for _, o := range s.out {
		o.release()
	}
	for _, f := range s.files {
		if f != nil {
			f.Abort()
		}
	}
}
