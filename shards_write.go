package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/internal/jsonscan"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// WriteShards writes the shards of Split to a directory, which it creates if need be. Each shard
// has the metadata. If there are several, it also writes their index. maxBytes is as for Split.
//
// One step replaces an earlier checkpoint: the rename of the index or of the single shard. When
// several shards replace a single file, the step is the removal of the single file. After a failure or a crash, the
// directory opens as the earlier checkpoint or as the new one, each whole; an earlier set without
// an index may not open. If the directory holds a checkpoint, the stem of the new shards gets a
// random number, so that no name of a shard is used twice. At the end
// WriteShards removes the files of earlier and of crashed saves; if that fails, the error says
// that the new checkpoint is complete, and names all files that stay. A concurrent WriteShards to the same directory fails; on
// file systems without locks, such as NFS, save one at a time. On Windows open files can be
// neither replaced nor removed.
func WriteShards(dir string, tensors map[string]Tensor, metadata map[string]string, maxBytes int64) error {
	return Saver{}.WriteShards(dir, tensors, metadata, maxBytes)
}

// writeShards does what WriteShards does, with the tensors already assigned to shards.
func (s Saver) writeShards(dir string, shards map[string]map[string]Tensor, metadata map[string]string) error {
	settings, err := s.settings(osfile.SaverTag)
	if err != nil {
		return err
	}
	set := shardSet{dir: dir, settings: settings, names: slices.Sorted(maps.Keys(shards))}
	defer set.abort()
	memory := new(resultPool)
	for _, name := range set.names {
		o, err := newOutFile(shards[name], metadata, s.Align, memory)
		if err != nil {
			return err
		}
		set.out = append(set.out, o)
	}
	if set.computes() {
		for _, o := range set.out {
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
	if err := osfile.RemoveTagged(dir, osfile.SaverTag); err != nil { // left-over files may take the space that the new files need
		return err
	}
	if err := set.findEarlier(); err != nil {
		return err
	}
	if len(set.names) > 1 {
		set.rename()
		if err := set.addIndex(metadata); err != nil {
			return bare(err)
		}
	}
	if err := set.write(); err != nil {
		return err
	}
	return set.commit()
}

// addIndex adds the index of the shards to the set, as its last file.
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

// Split assigns tensors, in the order of their names, to shards of up to maxBytes bytes, and
// returns the shards by file name. A larger tensor is a shard of its own. If maxBytes is 0 or
// less, there is no limit. A single shard is named model.safetensors; several have names such as
// model-00001-of-00003.safetensors.
//
// Tensors whose header would have more than 100,000,000 bytes become several shards, too.
func Split(tensors map[string]Tensor, maxBytes int64) map[string]map[string]Tensor {
	return split(tensors, maxBytes, maxHeaderLength)
}

// split is like Split, but limits the header of a shard, without the metadata, to maxHeader bytes.
func split(tensors map[string]Tensor, maxBytes, maxHeader int64) map[string]map[string]Tensor {
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
	groups = splitHeaders(groups, maxHeader)
	if len(groups) == 1 {
		return map[string]map[string]Tensor{modelFile: groups[0]}
	}
	shards := make(map[string]map[string]Tensor, len(groups))
	for i, group := range groups {
		shards[fmt.Sprintf("%s-%05d-of-%05d%s", modelStem, i+1, len(groups), fileSuffix)] = group
	}
	return shards
}

// splitHeaders splits the groups of tensors that do not fit into one header of max bytes, in name
// order. A tensor whose entry alone is longer remains a group; writing it is an error.
func splitHeaders(groups []map[string]Tensor, max int64) (split []map[string]Tensor) {
	for _, group := range groups {
		if headerBound(group) <= max || headerFits(group, max) {
			split = append(split, group)
			continue
		}
		current, length := map[string]Tensor{}, headerBound(nil)
		for _, name := range slices.Sorted(maps.Keys(group)) {
			n := entryBound(name, group[name])
			if length+n > max && len(current) > 0 {
				split = append(split, current)
				current, length = map[string]Tensor{}, headerBound(nil)
			}
			current[name] = group[name]
			length += n
		}
		split = append(split, current)
	}
	return split
}

// headerBound returns an upper bound of the length of a header without metadata, in bytes.
func headerBound(tensors map[string]Tensor) int64 {
	length := int64(len("{}") + headerAlignment)
	for name, t := range tensors {
		length += entryBound(name, t)
	}
	return length
}

// entryBound returns an upper bound of the length of a tensor's entry in a header, in bytes, for
// any data offsets.
func entryBound(name string, t Tensor) int64 {
	const offset = "9223372036854775807"
	text := jsonscan.AppendString(make([]byte, 0, 256), name)
	for _, dim := range t.shape {
		text = strconv.AppendInt(text, int64(dim), 10)
		text = append(text, ',')
	}
	return int64(len(text) + len(t.dtype.String()) + len(`:{"dtype":"","shape":[],"data_offsets":[`+offset+`,`+offset+`]},`))
}

// headerFits reports whether the header of tensors, without metadata, has at most max bytes. It
// encodes the header, which is slow, so callers first compare headerBound with max.
func headerFits(tensors map[string]Tensor, max int64) bool {
	o := new(outFile)
	err := o.layOut(tensors, nil, 0)
	return err == nil && int64(len(o.header)-prefixSize) <= max
}

// mostUnnamed limits the number of files that have no name until all are complete, on systems
// that support that. Each takes a descriptor until then, and a process may have only 1,024.
const mostUnnamed = 256

// A shardSet holds the files of a checkpoint that is being written.
type shardSet struct {
	dir      string
	settings osfile.Settings
	earlier  []string         // files of an earlier checkpoint, in the order in which to remove them
	names    []string         // names of the shards, then of their index
	out      []*outFile       // contents of these files; the text of the index is stored as a header
	files    []*osfile.Atomic // files that were created
}

// findEarlier lists the files of an earlier checkpoint. It is called before any file of the new
// one has a name.
func (s *shardSet) findEarlier() error {
	entries, err := osfile.ReadDir(s.dir)
	for _, e := range entries {
		switch name := e.Name(); {
		case name == indexFile: // the index is removed before the shards that it names
			s.earlier = slices.Insert(s.earlier, 0, name)
		case name == modelFile, ownShard(name):
			s.earlier = append(s.earlier, name)
		}
	}
	return err
}

// ownShard reports whether WriteShards could have given this name to a shard. It returns false for
// model.2-00001-of-00002.safetensors, for example: other programs number the versions of a model
// like that.
func ownShard(name string) bool {
	s, ok := parseShard(name)
	return ok && s.Stem == modelStem && s.Variant == ""
}

// rename gives the shards names that have never been used in this directory, not even by a save
// that the lock did not exclude: their stem gets a random number, unless the directory has no
// earlier checkpoint.
func (s *shardSet) rename() {
	if len(s.earlier) == 0 {
		return
	}
	save := variant.NewSave()
	for i, name := range s.names {
		s.names[i] = variant.WithSave(name, save)
	}
}

// computes reports whether some tensors are computed.
func (s *shardSet) computes() bool { return slices.ContainsFunc(s.out, (*outFile).computes) }

// write writes and flushes all files, the index after its shards.
func (s *shardSet) write() error {
	atOnce := 4 // number of files that are written concurrently: some are flushed while others are written
	if s.computes() {
		atOnce = 2 // fewer, because each file holds results of computed tensors in memory
	}
	first, err := s.settings.Create(filepath.Join(s.dir, s.names[0]))
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
			return osfile.Writing(name, err)
		}
		return f.Finish()
	}
	last := int64(len(s.names) - 1)
	if err := parallel.Do(atOnce, last, write); err != nil {
		return err
	}
	return write(last)
}

// commit makes the finished files the checkpoint of the directory, and removes the files of an
// earlier one.
func (s *shardSet) commit() error {
	last := s.names[len(s.names)-1]
	stale := slices.DeleteFunc(s.earlier, func(name string) bool { return name == last })
	dir, err := osfile.OpenDir(s.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := s.settings.Ready(); err != nil {
		return err
	}
	if err := s.replace(dir, slices.Contains(stale, modelFile)); err != nil {
		for _, f := range s.files {
			f.TakeBack()
		}
		return err
	}
	err = dir.Sync()
	if err == nil {
		left := s.remove(stale) // not flushed: the next save removes files that a crash restores
		if len(left.Errs) > 0 {
			err = left
		}
	}
	if err != nil {
		return fmt.Errorf("the new checkpoint in %s is complete, but what follows failed: %w", s.dir, err)
	}
	return nil
}

// replace makes the new files the checkpoint that the directory opens as. Only its last step does
// that: the rename of the last file or, if the directory has a single file model.safetensors, which
// Open prefers, the removal of that file. According to POSIX, a later step may persist before an
// earlier one, unless the directory is flushed between them.
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
	return errors.Join(s.remove([]string{modelFile}).Errs...)
}

// remove removes files from the directory, unless they are gone already. It goes on after an error.
// Only if the index stays, the shards that it names stay, too.
func (s *shardSet) remove(names []string) *osfile.Leftover {
	left := new(osfile.Leftover)
	for i, name := range names {
		err := osfile.Remove(filepath.Join(s.dir, name))
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
		left.Names, left.Errs = append(left.Names, name), append(left.Errs, fmt.Errorf("removing a file of an earlier checkpoint: %w", err))
		if rest := names[i+1:]; name == indexFile && len(rest) > 0 {
			left.Names = append(left.Names, rest...)
			left.Errs = append(left.Errs, fmt.Errorf("its shards stay, too: %s", strings.Join(rest, ", ")))
			break
		}
	}
	return left
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

// WriteShards does the same as the func [WriteShards], with the settings of s, for the shards and their index. Only
// the shards are aligned.
func (s Saver) WriteShards(dir string, tensors map[string]Tensor, metadata map[string]string, maxBytes int64) error {
	room := int64(maxHeaderLength)
	if metadata != nil {
		room -= int64(len(appendMetadata(nil, metadata)) + len(","))
	}
	return prefixed(s.writeShards(dir, split(tensors, maxBytes, room), metadata))
}
