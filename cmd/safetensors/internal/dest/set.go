package dest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/variant"
	"golang.org/x/sync/errgroup"
)

// A Set is a set of shards that is written to a folder, with their index if Index is not "".
type Set struct {
	Shards   map[string]Shard
	Metadata map[string]string // metadata of shards that consist of tensors
	Index    string            // name of the index; "" if there is none
	Text     []byte            // text of the index, if the shards are copies

	// Parameters is the total_parameters of the index. 0 stands for the number of elements. If it
	// is negative, the index has no total_parameters, since codes of quantised weights are not
	// parameters.
	Parameters int64
	Force      bool // whether a checkpoint in the folder is replaced

	// Variant is the variant for which the user asks, such as fp16, or "". Files of other variants of the same model do
	// not prevent a Set of this variant, since readers that ask for it find it beside them.
	Variant string

	// Record identifies the source of copied shards. While the shards are written, the folder
	// contains it, with the versions of complete shards, so that a later Set with the same Record
	// need not write these again. It is nil if checksums identify the shards, or if nothing can. If
	// Record or Sums is set, and nothing was replaced, complete shards stay after an error.
	Record []byte
	Sums   bool

	// AtOnce is the number of shards that are written concurrently. 0 selects the number that suits
	// the folder.
	AtOnce int

	// Unchanged returns an error if the source of copies has changed. CopyFiles writes the files
	// next to the shards, before the index is written. Both may be nil.
	Unchanged, CopyFiles func() error

	mu   sync.Mutex
	left record // content of the record in the folder
	// byConfig is true if the config.json makes a reader of the folder open the model of the Set, and not that of
	// another library: see CheckLibrary.
	byConfig bool
	// records is true if the folder has, or will have, a record, which end must remove.
	records bool
}

// A Shard consists of tensors, or of the bytes that CopyTo writes. Size is the number of these
// bytes, or -1 if it is unknown.
type Shard struct {
	Tensors map[string]safetensors.Tensor
	CopyTo  func(io.Writer) error
	Size    int64
	There   bool // whether the folder already contains the shard

	// Source is the remote file that CopyTo copies. It is nil for tensors, for files of this machine, and for
	// files whose changes would not show.
	Source *Source
}

// Write writes the shards, then the index, and then removes the files of an earlier checkpoint with the
// same stem and variant. A checkpoint with another stem, such as consolidated, or of another variant stays.
// If a reader of the folder would then open that one, Write returns an error before it writes. No
// new shard replaces an old one, because a reader of the earlier checkpoint, which may itself be
// the source of the copy, must not find new shards. So if there are several shards, each gets a
// name with a random number, unless it is a copy whose name is free. If Write fails before the new
// checkpoint is the one that a reader opens, it removes the new shards, except those that stay
// because of Record or Sums.
//
// The caller must have locked the folder. Write also removes the files that a killed Set has left
// in the folder.
func (s *Set) Write(to Shared) error {
	to.Sweep(s.partials()...)
	there, earlier, stale, others, err := s.check(to)
	if err != nil {
		return err
	}
	replaced := slices.Concat(earlier, stale)
	names := s.newNames(earlier, others)
	stay := (s.Sums || s.Record != nil) && len(earlier) == 0
	if !stay {
		s.forget(to)
	}
	var fresh []string // files that are removed after an error
	for _, name := range names {
		if _, old := there[name]; !old && !stay {
			fresh = append(fresh, name)
		}
	}
	index, err := s.index(names)
	if err != nil {
		return err
	}
	if _, found := there[recordName]; !found && !stay {
		fresh = append(fresh, recordName)
	}
	if err = s.begin(to, replaced, names, there); err == nil {
		err = s.write(to, names)
	}
	if err == nil && s.CopyFiles != nil {
		if err = s.CopyFiles(); err != nil && s.inPlace(there) {
			return WeightsComplete(err)
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
	return s.end(to, replaced, slices.Collect(maps.Values(names)))
}

// Check returns the error that Write returns if the folder contains files that the new checkpoint
// may not replace or join. It changes nothing.
func (s *Set) Check(to Shared) error {
	_, _, _, _, err := s.check(to)
	return err
}

// check returns the files in a folder, those of them that before returns, and the error of Check.
func (s *Set) check(to Shared) (there map[string]Stored, earlier, stale, others []string, err error) {
	if there, err = s.files(to); err != nil {
		return nil, nil, nil, nil, err
	}
	if earlier, stale, others, err = s.before(to, there); err != nil {
		return nil, nil, nil, nil, err
	}
	replaced := slices.Concat(earlier, stale)
	return there, earlier, stale, others, cmp.Or(s.checkOthers(to, there, replaced), s.checkThere(to, there, replaced))
}

// WeightsComplete returns an error from writing the files next to the weights, for the case that the new weights
// have already replaced the earlier ones.
func WeightsComplete(err error) error {
	return fmt.Errorf("the weights are complete, but not the files next to them: %w", err)
}

// inPlace reports whether the Set is a single file without an index that replaces a file of the same name. Then
// the new weights are already those of the folder when the files next to them are written.
func (s *Set) inPlace(there map[string]Stored) bool {
	for name := range s.Shards {
		if _, found := there[name]; !found {
			return false
		}
	}
	return s.Index == ""
}

// newNames maps the names of the shards to those that they get in the folder. earlier and others are as before
// returns them.
func (s *Set) newNames(earlier, others []string) map[string]string {
	names, save := make(map[string]string), variant.NewSave()
	for name, shard := range s.Shards {
		names[name] = name
		taken := slices.Contains(earlier, name) || slices.Contains(others, name) || shard.CopyTo == nil && len(earlier) > 0
		if taken && len(s.Shards) > 1 && !shard.There {
			names[name] = variant.WithSave(name, save)
		}
	}
	return names
}

// forget removes the partial files of earlier copies, and makes this Set leave none.
func (s *Set) forget(to Shared) {
	to.Sweep()
	for name, shard := range s.Shards {
		shard.Source = nil
		s.Shards[name] = shard
	}
}

// end removes the files that the new checkpoint has replaced, and the record. The new checkpoint is
// complete.
func (s *Set) end(to Shared, replaced, shards []string) error {
	var errs []error
	for _, name := range replaced {
		if name == s.Index || slices.Contains(shards, name) {
			continue
		}
		if err := removeFirmly(to, name); err != nil {
			errs = append(errs, fmt.Errorf("the new checkpoint is complete, but a file of an earlier one could not be removed: %w", err))
		}
	}
	if s.records && len(errs) == 0 { // otherwise the next Set needs the record
		errs = append(errs, removeFirmly(to, recordName))
	}
	return errors.Join(errs...)
}

// removeFirmly removes a file. If that fails, it tries once more, because the file would otherwise
// stay until the next save.
func removeFirmly(to Shared, name string) error {
	if to.Remove(name) == nil {
		return nil
	}
	return to.Remove(name)
}

// files returns the files in a folder, and the files in folders below it that have the names of
// shards.
func (s *Set) files(to Shared) (map[string]Stored, error) {
	return filesNamed(to, slices.Collect(maps.Keys(s.Shards)))
}

// checkThere returns an error if the folder has a checkpoint and Force is false. It also returns an
// error if weights would remain from which a reader could not distinguish the new ones: only an index, the name
// model.safetensors, or that of a variant for which readers ask distinguishes them.
func (s *Set) checkThere(to Shared, there map[string]Stored, earlier []string) error {
	_, single := s.Shards[format.ModelFile]
	if s.Variant != "" && s.Index == "" { // transformers and diffusers open a variant by the name of its file
		single = slices.Contains(slices.Concat(modelconfig.Transformers, modelconfig.Diffusers), s.model().stem)
	}
	var exists error // what --force would allow
	for _, name := range slices.Sorted(maps.Keys(there)) {
		shard, ours := s.Shards[name]
		replaced := ours || slices.Contains(earlier, name)
		switch {
		case !IsCheckpoint(name) || shard.There || !ours && s.beside(name):
		case name == s.Index && s.hasIndex(to): // an earlier copy was the same
		case s.Variant != "" && !replaced && !s.byConfig && modelOf(name).variant == s.Variant:
			return fmt.Errorf("%s stays, and a reader would not know which file of the variant %q to open: write to another folder", term.Name(to.PathOf(name)), s.Variant)
		case !single && s.Index == "" && !s.byConfig && !replaced:
			return fmt.Errorf("%s stays, and among several files without an index nobody would find the new ones: write to another folder", term.Name(to.PathOf(name)))
		case s.Force || exists != nil:
		case !replaced:
			exists = fmt.Errorf("%s exists; --force writes the model beside it", term.Name(to.PathOf(name)))
		default:
			exists = checkAbsent(to.PathOf(name), nil)
		}
	}
	return exists
}

// hasIndex reports whether all shards of a Set are in the folder, and the index has the text that the Set would write.
func (s *Set) hasIndex(to Shared) bool {
	for _, shard := range s.Shards {
		if !shard.There {
			return false
		}
	}
	text, err := to.Read(s.Index, int64(len(s.Text))+1)
	return err == nil && s.Text != nil && bytes.Equal(text, s.Text)
}

// write writes the shards that the folder does not contain yet.
func (s *Set) write(to Shared, names map[string]string) error {
	var group errgroup.Group // writes the other shards even after an error of one
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

// index returns the text of the index of the shards. names maps the shards to their names in the
// folder.
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
		return IndexOf(headers, s.Parameters)
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

// commit makes new shards the checkpoint of the folder. It writes the index, and removes the single
// file of an earlier checkpoint, which a reader would open before the index. A call that fails may
// still have taken effect in a store, because only the answer may be lost. So after an error,
// commit reads the folder to find out which of the two checkpoints is there.
func commit(to Shared, name string, index []byte, fresh []string, single bool) error {
	if err := to.Put(name, index); err != nil {
		now, readErr := to.Read(name, int64(len(index))+1)
		switch {
		case readErr == nil && bytes.Equal(now, index):
			if _, local := to.(folder); local { // the index is complete, but Put has not flushed it
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
			remove(to, append([]string{name}, fresh...)) // removes the index first
			return err
		default:
			return fmt.Errorf("%w; it is not known whether the earlier checkpoint is there, so the new one stays: %w", err, readErr)
		}
	}
	return nil
}

// remove removes new files after an error, which the caller returns. It ignores errors.
func remove(to Shared, names []string) {
	for _, name := range names {
		to.Remove(name)
	}
}

// isPartOfSet reports whether a file is an index or a shard, judging by its name.
func isPartOfSet(name string) bool {
	_, numbered := variant.ParseShard(name)
	return numbered || safetensorsFiles.IsIndex(name)
}

var safetensorsFiles = variant.Endings{".safetensors"}

// free returns an error if a folder contains a file of a checkpoint, other than a variant of the model that a Destination
// writes. maxBytes is the largest size of a shard, or 0 for a single file.
func free(to Shared, maxBytes int64) error {
	files, err := to.Files("", false)
	if err == nil {
		err = CheckDistributed(to, files, nil)
	}
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(files)), new(Set).beside)
	for _, name := range names {
		if IsCheckpoint(name) && (name == format.ModelFile || isPartOfSet(name)) {
			return checkAbsent(to.PathOf(name), nil)
		}
	}
	if i := slices.IndexFunc(names, IsCheckpoint); i >= 0 {
		other, file := term.Name(to.PathOf(names[i])), term.Name(to.PathOf("NAME.safetensors"))
		if maxBytes > 0 {
			return fmt.Errorf("%s exists: without --max-shard-size, write %s as DST to copy a file beside it; --force writes a model beside it", other, file)
		}
		return fmt.Errorf("%s exists: write %s as DST to copy a file beside it; --force writes a model beside it", other, file)
	}
	return nil
}
