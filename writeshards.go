package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf16"
)

// WriteShards writes a checkpoint to a folder, which is created if need be, in
// shards of up to maxBytes bytes of data, and an index of them, in the form that
// the Python packages write and read. Tensors are dealt out in the order of their
// names; one above the limit has a shard of its own. If one shard is enough, it
// is model.safetensors, without an index; otherwise they are
// model-00001-of-00003.safetensors and so on, and model.safetensors.index.json.
// Each shard has the metadata.
//
// All files are written under temporary names, side by side, and brought to the
// disk before the first takes its name, the index last; then what an earlier save
// left over of such names is removed. If anything fails until then, or the process
// dies, the earlier checkpoint is whole. Only if the process or the system dies
// between the renames, a matter of milliseconds, and if the earlier checkpoint
// has as many shards, do old and new shards stand side by side under the old
// index. Where that must not be, write each checkpoint to a folder of its own,
// and give that its name when it is complete:
//
//	err := safetensors.WriteShards("step-2000.partial", tensors, metadata, 5<<30)
//	if err == nil {
//		err = os.Rename("step-2000.partial", "step-2000")
//	}
//
// Programs on several machines that each have a part of the tensors write their
// own shards with WriteFile, to a shared folder or an object store, and when all
// have, one of them writes the index: see BuildIndex.
func WriteShards(dir string, tensors map[string]Tensor, metadata map[string]string, maxBytes int64) error {
	groups, err := dealOut(tensors, maxBytes)
	if err != nil {
		return err
	}
	s := shardSet{dir: dir}
	defer s.abort()
	weights := make(map[string]string, len(tensors))
	total := int64(0)
	for i, group := range groups {
		name := modelFile
		if len(groups) > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, len(groups))
		}
		total += group.size
		part := make(map[string]Tensor, len(group.names))
		for _, tensor := range group.names {
			part[tensor] = tensors[tensor]
			weights[tensor] = name
		}
		c, err := newCheckpoint(part, metadata)
		if err != nil {
			return err
		}
		s.names, s.checkpoints = append(s.names, name), append(s.checkpoints, c)
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if err := s.write(); err != nil {
		return err
	}
	if len(groups) > 1 {
		if err := s.writeIndex(encodeIndex(weights, total)); err != nil {
			return err
		}
	}
	return s.commit()
}

// A shardGroup is the tensors of one shard.
type shardGroup struct {
	names []string
	size  int64 // of their data
}

// dealOut groups tensors into shards as huggingface_hub does: in order, a new
// shard when the next tensor does not fit.
func dealOut(tensors map[string]Tensor, maxBytes int64) ([]shardGroup, error) {
	if maxBytes < 1 {
		return nil, fmt.Errorf("safetensors: shards of at most %d bytes", maxBytes)
	}
	var groups []shardGroup
	var current shardGroup
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		size, broken := checkShape(tensors[name].DType, tensors[name].Shape)
		if broken != "" {
			return nil, &FormatError{Offset: -1, Tensor: name, Reason: broken}
		}
		if size > maxBytes {
			groups = append(groups, shardGroup{[]string{name}, size})
			continue
		}
		if size > maxBytes-current.size {
			groups = append(groups, current)
			current = shardGroup{}
		}
		current.names = append(current.names, name)
		current.size += size
	}
	if len(current.names) > 0 || len(groups) == 0 {
		groups = append(groups, current)
	}
	return groups, nil
}

// A shardSet is the files of a checkpoint in the making.
type shardSet struct {
	dir         string
	names       []string      // of the shards
	checkpoints []*checkpoint // what they hold
	files       []*atomicFile // those begun, in order of their names; the index last
}

// write writes all shards and brings them to the disk.
func (s *shardSet) write() error {
	const atOnce = 4 // one is synced while another is written
	s.files = make([]*atomicFile, len(s.names))
	return parallel(atOnce, int64(len(s.names)), func(i int64) (err error) {
		f, err := createAtomic(filepath.Join(s.dir, s.names[i]))
		if err != nil {
			return err
		}
		s.files[i] = f
		if err := s.checkpoints[i].writeFile(f.File); err != nil {
			return fmt.Errorf("safetensors: writing %s: %w", f.name, bare(err))
		}
		return f.finish()
	})
}

// writeIndex writes the index like a shard.
func (s *shardSet) writeIndex(text []byte) error {
	f, err := createAtomic(filepath.Join(s.dir, modelFile+indexSuffix))
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	if _, err := f.Write(text); err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return f.finish()
}

// commit gives the files their names and removes those of an earlier save. First
// of these to go is the one that a folder is opened by.
func (s *shardSet) commit() error {
	kept := make(map[string]bool)
	for _, f := range s.files {
		if err := f.rename(); err != nil {
			return err
		}
		kept[filepath.Base(f.name)] = true
	}
	if err := syncDir(s.dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	stale := []string{modelFile, modelFile + indexSuffix}
	for _, e := range entries {
		if shardName.MatchString(e.Name()) {
			stale = append(stale, e.Name())
		}
	}
	for _, name := range stale {
		if kept[name] {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("safetensors: removing a shard of an earlier checkpoint: %w", err)
		}
	}
	return syncDir(s.dir)
}

var shardName = regexp.MustCompile(`^model-\d{5,}-of-\d{5,}\.safetensors$`)

func (s *shardSet) abort() {
	for _, c := range s.checkpoints {
		c.done()
	}
	for _, f := range s.files {
		if f != nil {
			f.abort()
		}
	}
}

// BuildIndex returns the content of a model.safetensors.index.json for shards by
// their file names, which it makes of their headers alone. A tensor that is in
// two of them is a *FormatError.
//
// So a checkpoint can be written by several machines, each with its own part of
// the tensors: machine 3 of 8 writes model-00003-of-00008.safetensors to a shared
// folder with WriteFile, or to an object store with Write; when all are there,
// one machine opens the shards, with Open or with NewFile over the store's range
// reads, and writes the index. Until it does, there is no new checkpoint. With an
// object store, where writing one object is atomic, nothing else is needed; in a
// folder the index is written under another name, synced, and renamed.
func BuildIndex(shards map[string]*File) ([]byte, error) {
	weights := make(map[string]string)
	total := int64(0)
	for _, shard := range slices.Sorted(maps.Keys(shards)) {
		if !localName(shard) {
			return nil, &FormatError{Offset: -1, Reason: "shard " + quote(shard) + " is not a file beside the index"}
		}
		for name, t := range shards[shard].Tensors() {
			if other, ok := weights[name]; ok {
				return nil, &FormatError{Offset: -1, Tensor: name, Reason: fmt.Sprintf("it is in shard %s and in shard %s", quote(other), quote(shard))}
			}
			weights[name] = shard
			total += t.size
		}
	}
	return encodeIndex(weights, total), nil
}

// encodeIndex writes an index as the Python packages do: an indent of two spaces,
// keys sorted, a newline at the end, and all but ASCII escaped, since some of them
// read it in the encoding of the locale.
func encodeIndex(weights map[string]string, total int64) []byte {
	b := []byte("{\n  \"metadata\": {\n    \"total_size\": ")
	b = strconv.AppendInt(b, total, 10)
	b = append(b, "\n  },\n  \"weight_map\": {"...)
	for i, name := range slices.Sorted(maps.Keys(weights)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b = appendASCII(b, name)
		b = append(b, ": "...)
		b = appendASCII(b, weights[name])
	}
	if len(weights) > 0 {
		b = append(b, "\n  "...)
	}
	return append(b, "}\n}\n"...)
}

// appendASCII appends a JSON string in which all but ASCII is escaped.
func appendASCII(b []byte, s string) []byte {
	for _, r := range string(appendString(nil, s)) {
		if r < 0x7f { // Python escapes DEL, too
			b = append(b, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, "\\u%04x", unit)
		}
	}
	return b
}
