package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// WriteShards writes a checkpoint to a folder, which it creates if need be: the
// shards of Split and an index of them, in the form that the Python packages
// write and read. A single shard has no index. Each shard has the metadata.
//
// All files are written to temporary names and flushed before the first rename;
// the index is renamed last. Then WriteShards removes what an earlier save left
// under such names. If anything fails before the first rename, or the process
// crashes, the earlier checkpoint is whole. Only if the process or the system
// crashes between the renames, a matter of milliseconds, and if the earlier
// checkpoint has as many shards, are old and new shards mixed under the old
// index. Where that must not be, write each checkpoint to a folder of its own,
// and rename the folder when it is complete:
//
//	err := safetensors.WriteShards("step-2000.partial", tensors, metadata, 5<<30)
//	if err == nil {
//		err = os.Rename("step-2000.partial", "step-2000")
//	}
//
// Programs on several machines that each have a part of the tensors write their
// own shards with WriteFile, to a shared folder or an object store. When all have,
// one of them writes the index: see BuildIndex.
func WriteShards(dir string, tensors map[string]Tensor, metadata map[string]string, maxBytes int64) error {
	if maxBytes < 1 {
		return prefixed(fmt.Errorf("shards of at most %d bytes", maxBytes))
	}
	return prefixed(writeShards(dir, Split(tensors, maxBytes), metadata))
}

func writeShards(dir string, shards map[string]map[string]Tensor, metadata map[string]string) error {
	s := shardSet{dir: dir, names: slices.Sorted(maps.Keys(shards))}
	defer s.abort()
	for _, name := range s.names {
		o, err := newOutFile(shards[name], metadata)
		if err != nil {
			return err
		}
		s.out = append(s.out, o)
	}
	var index []byte
	if len(shards) > 1 {
		var err error
		if index, err = BuildIndex(shards); err != nil {
			return bare(err)
		}
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	if err := s.write(); err != nil {
		return err
	}
	if index != nil {
		if err := s.writeIndex(index); err != nil {
			return err
		}
	}
	return s.commit()
}

// Split deals tensors out to shards of up to maxBytes bytes of data, by file name,
// as WriteShards writes them. Tensors are assigned to shards in name order, as
// huggingface_hub does; a tensor larger than maxBytes gets its own shard. A single
// shard is model.safetensors; several are model-00001-of-00003.safetensors and so
// on. For other file names, rename the keys.
func Split(tensors map[string]Tensor, maxBytes int64) map[string]map[string]Tensor {
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
		return map[string]map[string]Tensor{osfile.ModelFile: groups[0]}
	}
	shards := make(map[string]map[string]Tensor, len(groups))
	for i, group := range groups {
		shards[fmt.Sprintf("model-%05d-of-%05d%s", i+1, len(groups), osfile.FileSuffix)] = group
	}
	return shards
}

// A shardSet is the files of a checkpoint that is being written.
type shardSet struct {
	dir   string
	names []string         // of the shards
	out   []*outFile       // their contents
	files []*osfile.Atomic // those created, in order of their names; the index last
}

// write writes and flushes all shards.
func (s *shardSet) write() error {
	const atOnce = 4 // one is flushed while another is written
	s.files = make([]*osfile.Atomic, len(s.names))
	return parallel.Do(atOnce, int64(len(s.names)), func(i int64) (err error) {
		f, err := osfile.Create(filepath.Join(s.dir, s.names[i]))
		if err != nil {
			return err
		}
		s.files[i] = f
		if err := s.out[i].writeFile(f); err != nil {
			return fmt.Errorf("writing %s: %w", f.Target(), err)
		}
		return f.Finish()
	})
}

// writeIndex writes the index as another file.
func (s *shardSet) writeIndex(text []byte) error {
	f, err := osfile.Create(filepath.Join(s.dir, osfile.IndexFile))
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Finish()
}

// commit renames the files and removes those of an earlier save. The first of
// these to go is the one that a folder is opened by.
func (s *shardSet) commit() error {
	kept := make(map[string]bool)
	for _, f := range s.files {
		if err := f.Rename(); err != nil {
			return err
		}
		kept[filepath.Base(f.Target())] = true
	}
	if err := osfile.SyncDir(s.dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return err
	}
	stale := []string{osfile.ModelFile, osfile.IndexFile}
	for _, e := range entries {
		if m := shardName.FindStringSubmatch(e.Name()); m != nil && m[1] == "model" {
			stale = append(stale, e.Name())
		}
	}
	for _, name := range stale {
		if kept[name] {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a shard of an earlier checkpoint: %w", err)
		}
	}
	return osfile.SyncDir(s.dir)
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
