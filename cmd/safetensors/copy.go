package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/convert"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/quant"
)

// A copyJob is what cp is about to write.
type copyJob struct {
	*copyFlags
	src      *source.Checkpoint
	tensors  map[string]safetensors.Tensor
	metadata map[string]string
	origin   map[string]string // the name in src of each tensor, but for those of --quantize
	read     int64             // bytes of src that this reads
	config   []byte            // the new config.json; nil if there is none
	side     []string          // next to the weights: a new config.json, and files of src that come along

	quantisation []byte // what --quantize puts into config

	layouts map[string]quant.Layout                 // of src, where it is dequantised or converted
	dtypes  map[safetensors.DType]safetensors.DType // that were converted, to which
	kept    int                                     // parts of quantised tensors that another dtype was asked for
	counts  map[string]*convert.Count               // of what was converted
}

func (c *command) copy(names []string, name string, f *copyFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if c.json && name == "-" {
		return usage("--json goes with a DST that is not standard output")
	}
	if f.part.IsSet() {
		return c.copyPart(names, name, f)
	}
	dst, err := c.openDestination(name, f.maxShardSize, f.ranks)
	folder, isFolder := dst.(dest.Shared)
	whole := isFolder && len(names) == 1 && f.maxShardSize == "" && f.ranks == 0
	if err == nil && !whole {
		err = unoccupied(dst, f.force)
	}
	if err != nil {
		return err
	}
	to := format.ByName(name)
	if to != nil && to.NoMetadata && (f.tie || f.meta != nil) {
		return usage("--meta, --tie: a %s has no place for metadata", to.Name)
	}
	if f.withFiles && !isFolder {
		return usage("--with-files: %s is a file, and other files go into a folder", term.Name(name))
	}
	w, err := c.openCopy(names, f)
	if err != nil {
		return err
	}
	defer w.src.Close()
	if err := w.prepare(); err != nil {
		return err
	}
	if !isFolder { // where a new config.json has no place
		w.side = nil
	}
	if whole = whole && w.src.Layout != nil || isFolder && stemOf(w.src) != format.Stem; whole {
		err = c.copyFolder(w, folder)
	} else if err = unoccupied(dst, f.force); err == nil {
		stop := c.progress("cp", w.read)
		err = dst.Write(w.tensors, w.metadata)
		stop()
	}
	if err != nil {
		return err
	}
	w.notes(c.opener.Note)
	c.noteMetadata(name, w.src.Name, w.metadata)
	if f.requantizes() && (folder == nil || w.config == nil) {
		c.opener.Note("config.json with its quantization_config is written where SRC has one and DST is a folder")
	}
	if !whole { // which has written them before the index
		if err := w.copyFiles(folder); err != nil {
			return fmt.Errorf("the weights are complete, but not the files next to them: %w", err)
		}
	}
	return c.print(w.written(name), func() {})
}

// noteMetadata says that the format of dst has no place for the metadata of src.
func (c *command) noteMetadata(dst, src string, metadata map[string]string) {
	lost := maps.Clone(metadata)
	delete(lost, "format") // which says what made the file
	if to := format.ByName(dst); to != nil && to.NoMetadata && len(lost) > 0 {
		c.opener.Note(fmt.Sprintf("the metadata of %s is left out: a %s has no place for it", storage.Shown(src), to.Name))
	}
}

// openCopy opens what is copied, with the files that --with-files copies.
func (c *command) openCopy(names []string, f *copyFlags) (*copyJob, error) {
	src, err := c.opener.OpenAll(names)
	if err != nil {
		return nil, err
	}
	w := &copyJob{copyFlags: f, src: src}
	if f.withFiles {
		if w.side, err = src.Folder.SideFiles(); err != nil {
			src.Close()
			return nil, fmt.Errorf("--with-files: %s: %w", storage.Shown(src.Name), err)
		}
	}
	return w, nil
}

// prepare makes of a source what is to be written.
func (w *copyJob) prepare() (err error) {
	stored := w.src.Size()
	w.dtypes = make(map[safetensors.DType]safetensors.DType)
	switch {
	case w.plain != 0:
		if w.layouts, err = dequantize(w.src); err != nil {
			err = fmt.Errorf("%s: %w", storage.Shown(w.src.Name), err)
		} else if !slices.ContainsFunc(w.src.Order, w.isQuantised) {
			err = fmt.Errorf("--dequantize: no tensor of %s is quantised", storage.Shown(w.src.Name))
		}
	case len(w.conversions) > 0:
		w.layouts, err = quantisedParts(w.src)
	}
	if err != nil {
		return err
	}
	if err := w.take(); err != nil {
		return err
	}
	w.read = min(w.read, stored)
	if w.quantize != "" {
		if err := w.count(); err != nil {
			return err
		}
		if err := w.quantiseWeights(); err != nil {
			return err
		}
	}
	if err := w.changeConfig(); err != nil {
		return err
	}
	if !w.withoutMeta {
		w.metadata = w.src.Metadata
	}
	w.metadata = withPairs(w.metadata, w.pairs)
	if w.tie {
		w.tensors, w.metadata = safetensors.Tie(w.tensors, w.metadata)
	}
	if w.quantize == "" {
		return w.count()
	}
	return nil
}

// copyFiles writes the files next to the weights.
func (w *copyJob) copyFiles(folder dest.Shared) (err error) {
	for _, name := range w.side {
		data := w.config
		if name != "config.json" || data == nil {
			if data, err = w.src.Folder.ReadFile(name); err != nil {
				return err
			}
		}
		if err := folder.Put(name, data); err != nil {
			return err
		}
	}
	return nil
}

// written returns what cp wrote, for the JSON form.
func (w *copyJob) written(name string) any {
	var sum total
	for _, t := range w.tensors {
		sum.add(listed{Parameters: numbers.Count(t), Bytes: t.Size()})
	}
	return struct {
		File  string   `json:"file"`  // as named on the command line
		Total total    `json:"total"` // of the tensors
		Files []string `json:"files"` // the others, sorted
	}{name, sum, append([]string{}, slices.Sorted(slices.Values(w.side))...)}
}

// take takes the tensors to write from the source.
func (w *copyJob) take() error {
	src := w.src
	names, err := w.selection.Of(slices.Concat(src.Order, slices.Sorted(maps.Keys(src.Refused))))
	if err != nil {
		return err
	}
	if len(names) == 0 && len(src.Order) > 0 {
		return errors.New("no tensor is selected")
	}
	if err := refusedError(src, names); err != nil {
		return err
	}
	renamed, err := pattern.RenameAll(names, w.renaming)
	if err != nil {
		return err
	}
	w.tensors, w.origin = make(map[string]safetensors.Tensor, len(names)), make(map[string]string, len(names))
	for i, name := range names {
		t := src.Tensors[name]
		w.read += t.Size()
		w.origin[renamed[i]] = name
		if to := w.target(name, t.DType()); to != t.DType() {
			if t, err = t.Convert(to); err != nil {
				return fmt.Errorf("tensor %q: %w", name, term.Bare(err))
			}
		}
		w.tensors[renamed[i]] = t
	}
	return nil
}

// refusedError returns the error of those names that cannot be read.
func refusedError(src *source.Checkpoint, names []string) error {
	const most = 10
	var errs []error
	for _, name := range names {
		if why, ok := src.Refused[name]; ok && len(errs) < most {
			errs = append(errs, fmt.Errorf("%q of %s: %w", name, storage.Shown(src.Name), why))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return errors.Join(append(errs, errors.New("--except leaves out what cannot be read"))...)
}
