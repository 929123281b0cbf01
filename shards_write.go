package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// WriteShards writes a checkpoint to a folder, which it creates if need be: the
// shards of Split and an index of them, in the form that the Python packages
// write and read. A single shard has no index. Each shard has the metadata.
//
// The folder may hold an earlier checkpoint. It is replaced at once, by the rename
// of one file: the index, or the single shard. Where several shards replace a single
// one, it is the removal of that. If WriteShards fails, or the process or the system
// crashes, the folder opens as the whole earlier checkpoint or as the whole new one,
// never as a mixture. (While an earlier set of shards without an index is replaced,
// opening the folder can be an error.) For that, no shard replaces another: where there
// are shards, the new ones get another stem, model.1-00001-of-00003.safetensors and so
// on, and where there is a single one, a stem with a random number. In the end
// WriteShards removes the files of the earlier checkpoint, and those that crashed saves
// left under such names. It removes their temporary files, .safetensors-shards-*.tmp,
// before it starts. So only one WriteShards may save to a folder at a time.
//
// An error of the removal, or of the flush before it, says that the new checkpoint is
// complete. After any other error the files in the folder are as they were.
//
// On Windows a file that is open can be neither replaced nor removed: while somebody has
// the index, or the single shard, open, WriteShards fails and the earlier checkpoint
// stays; while one of its shards is open, the error says that the new checkpoint is
// complete.
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
	shards, err := withNewNames(dir, shards)
	if err != nil {
		return err
	}
	s := shardSet{dir: dir, names: slices.Sorted(maps.Keys(shards))}
	defer s.abort()
	memory := newResults()
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
	var index []byte
	if len(shards) > 1 {
		if index, err = indexOf(shards); err != nil {
			return bare(err)
		}
	}
	if err := osfile.MkdirAll(dir); err != nil {
		return err
	}
	if err := osfile.RemoveTagged(dir, shardTag); err != nil { // they may fill the disk
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

// withNewNames returns several shards under a stem that no shard in the folder has:
// one more than the highest. Names are not reused by later saves either: a reader that
// still has the first index would find shards of the third. A single shard keeps its
// name: the rename that replaces it is atomic. It leaves no number to count on from, so
// that after it a random one is taken.
func withNewNames(dir string, shards map[string]map[string]Tensor) (map[string]map[string]Tensor, error) {
	if len(shards) == 1 {
		return shards, nil
	}
	entries, err := osfile.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	next, single := 0, false
	for _, e := range entries {
		if n, ok := stemNumber(e.Name()); ok {
			next = max(next, n+1)
		}
		single = single || e.Name() == osfile.ModelFile
	}
	if next == 0 && single {
		next = 1 + rand.IntN(1_000_000_000)
	}
	if next == 0 {
		return shards, nil
	}
	renamed := make(map[string]map[string]Tensor, len(shards))
	for name, tensors := range shards {
		renamed[fmt.Sprintf("%s.%d%s", shardStem, next, strings.TrimPrefix(name, shardStem))] = tensors
	}
	return renamed, nil
}

// stemNumber returns the number in the stem of a shard that WriteShards wrote, 0 if
// it has none.
func stemNumber(name string) (n int, ok bool) {
	m := shardName.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	number, ok := strings.CutPrefix(m[1], shardStem)
	if !ok || number == "" {
		return 0, ok
	}
	n, err := strconv.Atoi(strings.TrimPrefix(number, "."))
	return n, err == nil && number[0] == '.' && n > 0
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
		shards[fmt.Sprintf("%s-%05d-of-%05d%s", shardStem, i+1, len(groups), osfile.FileSuffix)] = group
	}
	return shards
}

// shardStem starts the names of shards.
const shardStem = "model"

// shardTag marks the temporary files of WriteShards, which alone saves to its folder:
// those that it finds are of saves that crashed.
const shardTag = "shards-"

// A shardSet is the files of a checkpoint that is being written.
type shardSet struct {
	dir   string
	names []string         // of the shards
	out   []*outFile       // their contents
	files []*osfile.Atomic // those created, in order of their names; the index last
}

// computes reports whether some tensors are computed.
func (s *shardSet) computes() bool { return slices.ContainsFunc(s.out, (*outFile).computes) }

// write writes and flushes all shards.
func (s *shardSet) write() error {
	atOnce := 4 // one is flushed while another is written
	if s.computes() {
		atOnce = 2 // each holds some results
	}
	s.files = make([]*osfile.Atomic, len(s.names))
	return parallel.Do(atOnce, int64(len(s.names)), func(i int64) (err error) {
		f, err := osfile.CreateTagged(filepath.Join(s.dir, s.names[i]), shardTag)
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
	f, err := osfile.CreateTagged(filepath.Join(s.dir, osfile.IndexFile), shardTag)
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	if _, err := f.WriteAt(text, 0); err != nil {
		return err
	}
	return f.Finish()
}

// commit makes the finished files the checkpoint of the folder, and removes those of
// an earlier one.
func (s *shardSet) commit() error {
	stale, err := s.stale()
	if err != nil {
		return err
	}
	dir, err := osfile.OpenDir(s.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := s.replace(dir, slices.Contains(stale, osfile.ModelFile)); err != nil {
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
	return s.remove([]string{osfile.ModelFile})
}

// stale returns the files of an earlier checkpoint, in the order to remove them.
func (s *shardSet) stale() ([]string, error) {
	kept := make(map[string]bool)
	for _, f := range s.files {
		kept[filepath.Base(f.Target())] = true
	}
	entries, err := osfile.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var stale []string
	for _, e := range entries {
		name := e.Name()
		_, shard := stemNumber(name)
		switch {
		case kept[name]:
		case name == osfile.IndexFile: // before the shards that it names
			stale = slices.Insert(stale, 0, name)
		case shard || name == osfile.ModelFile:
			stale = append(stale, name)
		}
	}
	return stale, nil
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
