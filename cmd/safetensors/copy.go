package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A copyJob is what cp is about to write.
type copyJob struct {
	src      *source.Checkpoint
	tensors  map[string]safetensors.Tensor
	metadata map[string]string
	origin   map[string]string // the name in src of each tensor, but for those of --quantize
	read     int64             // bytes of src that this reads
	config   []byte            // the new config.json; nil if there is none
	side     []string          // next to the weights: a new config.json, and files of src that come along
	convert  *conversion
}

func (c *command) copy(names []string, name string, f copyFlags) error {
	p, err := f.plan()
	if err != nil {
		return err
	}
	if c.json && name == "-" {
		return usage("--json goes with a DST that is not standard output")
	}
	if f.part.IsSet() {
		return c.copyPart(names, name, f, p)
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
	src, err := c.opener.OpenAll(names)
	if err != nil {
		return err
	}
	defer src.Close()
	side, err := f.sideFiles(src)
	if err != nil {
		return err
	}
	w, err := p.prepare(src, f, side)
	if err != nil {
		return err
	}
	if !isFolder { // where a new config.json has no place
		w.side = nil
	}
	if whole = whole && src.Layout != nil; whole {
		err = c.copyFolder(w, folder, f)
	} else if err = unoccupied(dst, f.force); err == nil {
		stop := c.progress("cp", w.read)
		err = dst.Write(w.tensors, w.metadata)
		stop()
	}
	if err != nil {
		return err
	}
	for _, text := range w.convert.notes() {
		c.opener.Note(text)
	}
	c.noteMetadata(name, src.Name, w.metadata)
	if p.requantizes() && (folder == nil || w.config == nil) {
		c.opener.Note("config.json with its quantization_config is written where SRC has one and DST is a folder")
	}
	if !whole { // which has written them before the index
		if err := w.copyFiles(folder); err != nil {
			return fmt.Errorf("the weights are complete, but not the files next to them: %w", err)
		}
	}
	return c.print(writtenOf(name, w.tensors, w.side), func() {})
}

// noteMetadata says that the format of dst has no place for the metadata of src.
func (c *command) noteMetadata(dst, src string, metadata map[string]string) {
	lost := maps.Clone(metadata)
	delete(lost, "format") // which says what made the file
	if to := format.ByName(dst); to != nil && to.NoMetadata && len(lost) > 0 {
		c.opener.Note(fmt.Sprintf("the metadata of %s is left out: a %s has no place for it", storage.Shown(src), to.Name))
	}
}

// sideFiles returns the files of a source that --with-files copies.
func (f *copyFlags) sideFiles(src *source.Checkpoint) ([]string, error) {
	if !f.withFiles {
		return nil, nil
	}
	names, err := src.Folder.SideFiles()
	if err != nil {
		return nil, fmt.Errorf("--with-files: %s: %w", storage.Shown(src.Name), err)
	}
	return names, nil
}

// prepare makes of a source what is to be written.
func (p *plan) prepare(src *source.Checkpoint, f copyFlags, side []string) (w *copyJob, err error) {
	w = &copyJob{src: src, side: side}
	stored := src.Size()
	var results, left []string
	if p.dequantize != 0 {
		if results, left, err = dequantize(src); err != nil {
			return nil, err
		}
		if len(results) == 0 {
			return nil, fmt.Errorf("--dequantize: no tensor of %s is quantised", storage.Shown(src.Name))
		}
	}
	w.metadata = src.Metadata
	if w.convert, err = newConversion(p, src, results); err != nil {
		return nil, err
	}
	w.convert.left = left
	if w.tensors, w.origin, w.read, err = p.apply(src, w.convert); err != nil {
		return nil, err
	}
	w.read = min(w.read, stored)
	if p.quantize != "" {
		if err = w.convert.count(w.tensors); err != nil {
			return nil, err
		}
		before := len(w.tensors)
		if w.tensors, w.config, err = quantized(w.tensors, p.quantize, p.targets); err != nil {
			return nil, err
		}
		if len(w.tensors) == before { // without a scale
			return nil, fmt.Errorf("--quantize %s: no tensor of %s is one to be quantised", p.quantize, storage.Shown(src.Name))
		}
	}
	if err := w.changeConfig(p); err != nil {
		return nil, err
	}
	if f.withoutMeta {
		w.metadata = nil
	}
	w.metadata = withPairs(w.metadata, p.meta)
	if f.tie {
		w.tensors, w.metadata = safetensors.Tie(w.tensors, w.metadata)
	}
	if p.quantize == "" {
		err = w.convert.count(w.tensors)
	}
	return w, err
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

// A written is what cp wrote. Its fields are those of the JSON form.
type written struct {
	File  string   `json:"file"`  // as named on the command line
	Total total    `json:"total"` // of the tensors
	Files []string `json:"files"` // the others, sorted
}

func writtenOf(name string, tensors map[string]safetensors.Tensor, others []string) written {
	w := written{File: name, Files: append([]string{}, others...)}
	for _, t := range tensors {
		w.Total.add(listed{Parameters: numbers.Count(t), Bytes: t.Size()})
	}
	slices.Sort(w.Files)
	return w
}

// requantizes reports whether the copy needs another quantization_config.
func (p *plan) requantizes() bool { return p.dequantize != 0 || p.quantize != "" }

// apply returns the tensors to write, their names in the source, and how many bytes of that this
// reads.
func (p *plan) apply(src *source.Checkpoint, c *conversion) (tensors map[string]safetensors.Tensor, from map[string]string, read int64, err error) {
	names, err := p.selection.Of(slices.Concat(src.Order, slices.Sorted(maps.Keys(src.Refused))))
	if err != nil {
		return nil, nil, 0, err
	}
	if len(names) == 0 && len(src.Order) > 0 {
		return nil, nil, 0, errors.New("no tensor is selected")
	}
	if err := refusedError(src, names); err != nil {
		return nil, nil, 0, err
	}
	renamed, err := pattern.RenameAll(names, p.renames)
	if err != nil {
		return nil, nil, 0, err
	}
	tensors = make(map[string]safetensors.Tensor, len(names))
	from = make(map[string]string, len(names))
	for i, name := range names {
		t := src.Tensors[name]
		read += t.Size()
		from[renamed[i]] = name
		if tensors[renamed[i]], err = c.apply(name, renamed[i], t); err != nil {
			return nil, nil, 0, err
		}
	}
	return tensors, from, read, nil
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
