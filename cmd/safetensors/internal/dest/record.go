package dest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// recordName is the name of the file with the record, in the folder.
const recordName = ".safetensors-copy.json"

// A record is stored in the folder while a Set is being written, for the next Set in case this one
// is killed. It lists the shards that are complete copies, and the files that no checkpoint will
// need. If Of is not nil, Done matters only to a Set with the same Record.
type record struct {
	Of   []byte            // Record of the Set
	Done map[string]string // maps the names of complete shards to their versions in the folder

	// Old maps the files of the checkpoint that is being replaced to their versions. New maps
	// shards that did not exist before to their sizes, or to -1 if the size is unknown.
	Old map[string]string `json:",omitempty"`
	New map[string]int64  `json:",omitempty"`
}

// readRecord returns the record in a folder. there describes the files in the folder. readRecord
// returns a zero record if the folder has none, or if another program has written the file.
func readRecord(to Shared, there map[string]Stored) (r record, err error) {
	if _, found := there[recordName]; !found {
		return record{}, nil
	}
	text, err := to.Read(recordName, MostSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, err
	}
	if json.Unmarshal(text, &r) != nil {
		r = record{}
	}
	return r, nil
}

// stale returns the files of a record that have not changed since it was written. If another
// program has replaced a file since, the file has another version. The record may come from a
// stranger, so only names of checkpoint files in the folder count.
func (r record) stale(to Shared) (names []string, err error) {
	there, err := filesNamed(to, slices.Concat(slices.Collect(maps.Keys(r.Old)), slices.Collect(maps.Keys(r.New))))
	for _, name := range slices.Sorted(maps.Keys(there)) {
		version, old := r.Old[name]
		size, added := r.New[name]
		now := there[name]
		if IsCheckpoint(name) && (old && version != "" && version == now.Version || added && (size < 0 || size == now.Size)) {
			names = append(names, name)
		}
	}
	return names, err
}

// filesNamed returns the files in a folder, and those files in folders below it that have one of
// these names.
func filesNamed(to Shared, names []string) (map[string]Stored, error) {
	there, err := to.Files("", false)
	folders := make(map[string]map[string]Stored)
	for _, name := range names {
		dir, base := path.Split(name)
		if !fs.ValidPath(name) {
			continue
		}
		if dir != "" && folders[dir] == nil && err == nil {
			folders[dir], err = to.Files(path.Clean(dir), false)
		}
		if stored, found := folders[dir][base]; found {
			there[name] = stored
		}
	}
	return there, err
}

// resume marks the shards that an earlier Set with the same Record has written, unless they were
// replaced since.
func (s *Set) resume(before record, there map[string]Stored) {
	if s.Record == nil {
		return
	}
	if !bytes.Equal(before.Of, s.Record) {
		before.Done = nil
	}
	s.left = record{Of: s.Record, Done: make(map[string]string)}
	for name, shard := range s.Shards {
		if stored := there[name]; stored.Version != "" && stored.Version == before.Done[name] && stored.Size == shard.Size {
			shard.There = true
			s.left.Done[name], s.Shards[name] = stored.Version, shard
		}
	}
}

// before returns the files of the checkpoint in a folder that the Set replaces. It refuses a folder with a checkpoint
// of torch.distributed.checkpoint, which no Set replaces. It also returns the stale files,
// which a Set that was killed has left, and which no checkpoint in the folder needs, and the files of other
// checkpoints, which stay. And it marks the shards that an earlier Set with the same Record has completed.
func (s *Set) before(to Shared, there map[string]Stored) (files, stale, others []string, err error) {
	before, err := readRecord(to, there)
	if err != nil {
		return nil, nil, nil, err
	}
	if stale, err = before.stale(to); err != nil {
		return nil, nil, nil, err
	}
	if err = CheckDistributed(to, there, slices.AppendSeq(stale, maps.Keys(s.Shards))); err != nil {
		return nil, nil, nil, err
	}
	s.resume(before, there)
	files, others, err = s.earlier(to, there)
	stale = slices.DeleteFunc(stale, func(name string) bool { return slices.Contains(files, name) || slices.Contains(others, name) })
	return files, stale, others, err
}

// CheckDistributed returns an error if a folder holds a checkpoint of torch.distributed.checkpoint: its .metadata, or
// safetensors files with the names of ranks, of which a reader takes all. It ignores files with the names in ours, and
// shards of an index, because a model may also have shards with such names.
func CheckDistributed(to Shared, there map[string]Stored, ours []string) error {
	var found []string
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if variant.IsMetadata(name) || variant.IsRank(name) && !slices.Contains(ours, name) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	for name := range there {
		if isSafetensorsIndex(name) {
			shards, err := shardsOf(to, name)
			if err != nil {
				return err
			}
			found = slices.DeleteFunc(found, func(name string) bool { return variant.IsRank(name) && slices.Contains(shards, name) })
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s is of a checkpoint of torch.distributed.checkpoint, which would be read in place of the new one: write to another folder",
		term.Name(to.PathOf(found[0])))
}

// begin writes the record of a Set that replaces files, before the first shard. names maps the
// shards to their names in the folder.
func (s *Set) begin(to Shared, replaced []string, names map[string]string, there map[string]Stored) error {
	_, found := there[recordName]
	s.records = found || s.Record != nil || len(replaced) > 0
	if len(replaced) == 0 {
		return nil // the record is written with the first shard
	}
	now, err := filesNamed(to, replaced)
	if err != nil {
		return err
	}
	s.left.Old, s.left.New = make(map[string]string), make(map[string]int64)
	for _, name := range replaced {
		s.left.Old[name] = now[name].Version
	}
	for original, name := range names {
		if _, found := there[name]; !found && name != format.ModelFile {
			size := int64(-1)
			if shard := s.Shards[original]; shard.CopyTo != nil {
				size = shard.Size
			}
			s.left.New[name] = size
		}
	}
	return s.put(to)
}

func (s *Set) put(to Shared) error {
	text, err := json.Marshal(s.left)
	if err != nil {
		return err
	}
	return to.Put(recordName, text)
}

// record adds a complete shard to the record.
func (s *Set) record(to Shared, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, err := s.files(to)
	if err != nil {
		return err
	}
	s.left.Done[name] = files[name].Version
	return s.put(to)
}
