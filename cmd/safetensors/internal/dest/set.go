package dest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"golang.org/x/sync/errgroup"
)

// A Set is what a folder gets: shards, and their index if it has a name.
type Set struct {
	Shards   map[string]Shard
	Metadata map[string]string // of shards of tensors
	Index    string            // its name; "" if there is none
	Text     []byte            // of the index of copies
	Force    bool              // a checkpoint that is there is replaced

	// Record says of what the shards are copies. While they are written, it is in the folder with
	// the versions of those that are complete: a Set with the same one finds these. It is nil
	// where sums tell, or nothing does. After an error, new shards stay if either does and nothing
	// was replaced.
	Record []byte
	Sums   bool

	// AtOnce is how many shards are written concurrently; 0 is what suits the folder.
	AtOnce int

	// Unchanged returns an error if the source of copies has changed. CopyFiles writes the
	// files next to the shards, before the index. They may be nil.
	Unchanged, CopyFiles func() error

	mu   sync.Mutex
	done map[string]string // of the record
}

// A Shard is tensors, or what CopyTo writes: Size bytes, or -1 if that is not known.
type Shard struct {
	Tensors map[string]safetensors.Tensor
	CopyTo  func(io.Writer) error
	Size    int64
	There   bool // it is in the folder already
}

// Write writes the shards, then the index, then removes the files of an earlier checkpoint. No
// shard replaces another: a reader of the earlier checkpoint, which may be the one that is being
// copied, must not meet the new shards. So one of several shards gets a random number, unless it is
// a copy whose name is free. If Write fails before the new checkpoint is the one that is opened, it removes
// the new shards, but for those that stay.
func (s *Set) Write(to Shared) error {
	there, err := s.files(to)
	if err != nil {
		return err
	}
	if err := s.resume(to, there); err != nil {
		return err
	}
	earlier, err := earlier(to, there)
	if err == nil {
		err = s.checkThere(to, there, earlier)
	}
	if err != nil {
		return err
	}
	names, number := make(map[string]string), 100_000_000+rand.IntN(900_000_000)
	for name, shard := range s.Shards {
		names[name] = name
		taken := slices.Contains(earlier, name) || shard.CopyTo == nil && len(earlier) > 0
		if taken && len(s.Shards) > 1 && !shard.There {
			names[name] = ending.ReplaceAllString(name, fmt.Sprintf(".%d$2.safetensors", number))
		}
	}
	index, err := s.index(names)
	if err == nil {
		err = s.write(to, names)
	}
	if err == nil && s.CopyFiles != nil {
		err = s.CopyFiles()
	}
	var fresh []string
	stay := (s.Sums || s.Record != nil) && len(earlier) == 0
	for _, name := range names {
		if _, old := there[name]; !old && !stay {
			fresh = append(fresh, name)
		}
	}
	if err != nil {
		remove(to, fresh)
		return err
	}
	if s.Index != "" {
		if err := commit(to, s.Index, index, fresh, slices.Contains(earlier, format.ModelFile)); err != nil {
			return err
		}
	}
	var errs []error
	ours := append(slices.Collect(maps.Values(names)), s.Index)
	for _, name := range earlier {
		if slices.Contains(ours, name) {
			continue
		}
		if err := to.Remove(name); err != nil {
			errs = append(errs, fmt.Errorf("the new checkpoint is complete, but a file of an earlier one could not be removed: %w", err))
		}
	}
	if s.Record != nil {
		errs = append(errs, to.Remove(recordName))
	}
	to.Sweep()
	return errors.Join(errs...)
}

// files returns the files of a folder, and of those in it that shards go into what has their names.
func (s *Set) files(to Shared) (map[string]Stored, error) {
	there, err := to.Files("", false)
	folders := make(map[string]map[string]Stored)
	for name := range s.Shards {
		dir, base := path.Split(name)
		if dir != "" && folders[dir] == nil && err == nil {
			folders[dir], err = to.Files(path.Clean(dir), false)
		}
		if stored, found := folders[dir][base]; found {
			there[name] = stored
		}
	}
	return there, err
}

// checkThere returns an error if a checkpoint is in the folder that is not to be replaced, or if
// weights stay among which the new ones would not be found: only an index or the name of a single
// file tells these from others.
func (s *Set) checkThere(to Shared, there map[string]Stored, earlier []string) error {
	_, single := s.Shards[format.ModelFile]
	for _, name := range slices.Sorted(maps.Keys(there)) {
		shard, ours := s.Shards[name]
		switch {
		case !IsCheckpoint(name) || shard.There:
		case !s.Force:
			return checkAbsent(to.PathOf(name), nil)
		case !single && s.Index == "" && !ours && !slices.Contains(earlier, name):
			return fmt.Errorf("%s stays, and among several files without an index nobody would find the new ones", term.Name(to.PathOf(name)))
		}
	}
	return nil
}

// recordName is the name of a record in the folder.
const recordName = ".safetensors-copy.json"

// A record says which shards of a folder are complete copies of what.
type record struct {
	Of   []byte            // Record of the Set
	Done map[string]string // the versions of shards, as the folder has them
}

// resume finds the shards that an earlier Set with the same Record has left, unless they were
// replaced since.
func (s *Set) resume(to Shared, there map[string]Stored) error {
	if s.Record == nil {
		return nil
	}
	text, err := to.Read(recordName, MostSmall)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var left record
	if json.Unmarshal(text, &left) != nil || !bytes.Equal(left.Of, s.Record) {
		left.Done = nil
	}
	s.done = make(map[string]string)
	for name, shard := range s.Shards {
		if stored := there[name]; stored.Version != "" && stored.Version == left.Done[name] && stored.Size == shard.Size {
			shard.There = true
			s.done[name], s.Shards[name] = stored.Version, shard
		}
	}
	return nil
}

func (s *Set) record(to Shared, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	files, err := s.files(to)
	if err != nil {
		return err
	}
	s.done[name] = files[name].Version
	text, err := json.Marshal(record{s.Record, s.done})
	if err != nil {
		return err
	}
	return to.Put(recordName, text)
}

// write writes the shards that are not there.
func (s *Set) write(to Shared, names map[string]string) error {
	var group errgroup.Group // which writes the others, too, after the error of one
	group.SetLimit(min(cmp.Or(s.AtOnce, to.AtOnce()), to.AtOnce()))
	for _, name := range slices.Sorted(maps.Keys(s.Shards)) {
		shard := s.Shards[name]
		group.Go(func() error {
			if shard.There {
				return nil
			}
			err := to.WriteShard(names[name], shard, s.Metadata, s.Unchanged)
			if err == nil && s.Record != nil {
				err = s.record(to, names[name])
			}
			return err
		})
	}
	return group.Wait()
}

// index returns the index of the shards by the names they get.
func (s *Set) index(names map[string]string) ([]byte, error) {
	if s.Index == "" {
		return nil, nil
	}
	if s.Text == nil {
		headers := make(map[string]*safetensors.Header, len(s.Shards))
		for name, shard := range s.Shards {
			h := &safetensors.Header{Metadata: s.Metadata}
			for name, t := range shard.Tensors {
				h.Tensors = append(h.Tensors, safetensors.TensorInfo{Name: name, DType: t.DType(), Shape: t.Shape()})
			}
			headers[names[name]] = h
		}
		index, err := safetensors.NewIndex(maps.All(headers))
		if err != nil {
			return nil, err
		}
		return index.AppendBinary(nil)
	}
	index, err := safetensors.ReadIndex(bytes.NewReader(s.Text))
	if err != nil {
		return nil, err
	}
	renamed := false
	for tensor, shard := range index.Shards {
		renamed = renamed || names[shard] != shard
		index.Shards[tensor] = names[shard]
	}
	if !renamed {
		return s.Text, nil
	}
	return index.AppendBinary(nil)
}

// commit makes shards the checkpoint of the folder: by the index, or by the removal of
// the single file, which is opened before an index. An answer can get lost after the
// store has done what it was asked for, so that what is there decides.
func commit(to Shared, name string, index []byte, fresh []string, single bool) error {
	if err := to.Put(name, index); err != nil {
		now, readErr := to.Read(name, int64(len(index))+1)
		switch {
		case readErr == nil && bytes.Equal(now, index):
			if _, local := to.(folder); local { // it is not flushed
				return err
			}
		case readErr == nil, errors.Is(readErr, fs.ErrNotExist):
			remove(to, fresh)
			return err
		default:
			return fmt.Errorf("%w; it is not known whether the new index is there, so the new shards stay: %w", err, readErr)
		}
	}
	if !single {
		return nil
	}
	if err := to.Remove(format.ModelFile); err != nil {
		_, readErr := to.Read(format.ModelFile, 1)
		switch {
		case errors.Is(readErr, fs.ErrNotExist):
		case readErr == nil:
			remove(to, append([]string{name}, fresh...)) // the index first
			return err
		default:
			return fmt.Errorf("%w; it is not known whether the earlier checkpoint is there, so the new one stays: %w", err, readErr)
		}
	}
	return nil
}

// remove removes new files after an error, which the caller reports.
func remove(to Shared, names []string) {
	for _, name := range names {
		to.Remove(name)
	}
}

// earlier returns the files of the checkpoint in a folder, starting with those that open it. Shards
// that no checkpoint has are not among them, unless they have a number.
func earlier(to Shared, there map[string]Stored) ([]string, error) {
	var files []string
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if IsEarlier(name) {
			files = append(files, name)
		}
	}
	f, err := to.Open()
	switch broken := (*safetensors.FormatError)(nil); {
	case err == nil:
		for name := range f.Headers() {
			files = append(files, name)
		}
		f.Close()
	case !errors.As(err, &broken) && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return files, nil
}

// IsEarlier reports whether a file is of the checkpoint that a Set replaces, by its name: what opens
// it, or a shard with a number.
func IsEarlier(name string) bool {
	return name == format.ModelFile || strings.HasSuffix(name, ".safetensors.index.json") || withNumber.MatchString(name)
}

// ending is where the name of a shard gets a number, or another one, and withNumber matches what
// has one.
var (
	ending     = regexp.MustCompile(`(\.\d{9})?(-\d+-of-\d+)?\.safetensors$`)
	withNumber = regexp.MustCompile(`\.\d{9}-\d+-of-\d+\.safetensors$`)
)

// free returns an error if a file of a checkpoint is in a folder, or a shard without one.
func free(to Shared) error {
	files, err := to.Files("", false)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if IsCheckpoint(name) {
			return checkAbsent(to.PathOf(name), nil)
		}
	}
	return err
}
