package main

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

func (c *command) copy(names []string, name string, f *copyFlags) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := checkDestination(names, name); err != nil {
		return err
	}
	if err := c.checkJSON(name); err != nil {
		return err
	}
	if f.part.IsSet() {
		return c.copyPart(names, name, f)
	}
	result, err := c.copyModels(names, name, f)
	if err != nil {
		return withFolder(err, names, name)
	}
	return c.print(result, func() {})
}

// checkJSON returns an error if both the line of --json and the checkpoint would be written to standard output.
func (c *command) checkJSON(name string) error {
	if c.json && name == "-" {
		return usage("--json prints to standard output, so DST cannot be -")
	}
	return nil
}

// withFolder adds advice to err if one of several sources is a file such as config.json, which has
// no tensors. Then a shell has probably expanded folder/* to all files of a folder, and the advice
// is to copy the folder by its name.
func withFolder(err error, names []string, name string) error {
	config := func(name string) bool {
		return strings.HasSuffix(name, ".json") && !strings.HasSuffix(name, ".index.json") && !strings.Contains(name, "://")
	}
	if i := slices.IndexFunc(names, config); i >= 0 && len(names) > 1 {
		if file := new(source.JSONFile); errors.As(err, &file) { // its advice names the folder without a DST
			err = fmt.Errorf("%s: %w", storage.Shown(file.Name), file.WithoutAdvice())
		}
		return fmt.Errorf("%w; a folder is copied by its name: cp %s %s --with-files", err, term.FileWord(filepath.Dir(names[i])), storage.Word(name))
	}
	return err
}

// copyOne copies one model.
func (c *command) copyOne(names []string, name string, f *copyFlags) (*copied, error) {
	to, err := c.openTarget(name, f, len(names))
	if err != nil {
		return nil, err
	}
	w, err := c.openCopy(names, f)
	if err != nil {
		return nil, err
	}
	defer w.src.Close()
	w.untied = hasNoMetadata(name)
	if err := w.prepare(); err != nil {
		return nil, err
	}
	return c.writeCopy("cp", w, to)
}

// writeCopy writes a job that a verb has prepared.
func (c *command) writeCopy(verb string, w *copyJob, to copyTarget) (*copied, error) {
	var left []string
	if to.folder == nil { // a file has no place for a new config.json
		w.side = nil
	} else if !w.force && isOnto(w.src.Name, to.name) {
		return nil, onItself(to.name)
	} else {
		var err error
		if left, err = w.leftBehind(to.name); err != nil {
			return nil, err
		}
	}
	to.named = to.whole && dest.KeepsName(to.name) && w.src.Format != nil && w.src.Files[0].Name != "-"
	if to.named {
		var err error
		if to.dst, err = w.aligned(dest.Within(c.ctx, to.name, w.src.Files[0].Name, c.stdout)); err != nil {
			return nil, err
		}
	}
	unlock, err := to.lock(to.named && len(w.side) == 0)
	if err != nil {
		return nil, err
	}
	defer unlock()
	set, err := c.ready(w, to)
	if err != nil {
		return nil, err
	}
	result, err := c.write(verb, w, to, set)
	if err != nil {
		return nil, err
	}
	c.noteLeft(left)
	c.noteTooLarge(w.tooLarge)
	return result, nil
}

// ready returns an error if the job may not replace a file at the destination, which the caller has
// locked, or if a tensor that the index of the source does not list would be lost. It does not check
// shards, because Write of their set does: if the job writes shards to a folder, ready returns this
// set, and otherwise nil.
func (c *command) ready(w *copyJob, to copyTarget) (*dest.Set, error) {
	if len(w.src.Unlisted) > 0 && !w.asItIs() && isOnto(w.src.Name, to.name) {
		return nil, fmt.Errorf("%s: tensor %q of the shards would be lost, because the index does not list it: write to another folder", storage.Shown(w.src.Name), w.src.Unlisted[0])
	}
	if err := c.notPipeline(to); err != nil {
		return nil, err
	}
	occupied := w.sideFilesFree(to.folder)
	if to.shards == nil || to.named {
		return nil, cmp.Or(occupied, unoccupied(to.dst, w.force))
	}
	if to.whole && w.src.Layout != nil || stemOf(w.src) != format.Stem || w.parameters != 0 || c.variantOf(w.src) != "" {
		set, err := c.shardsOf(w, to.shards)
		if err == nil {
			err = w.checkLibrary(set, to.shards)
		}
		if err == nil && occupied != nil { // the reason that stays with --force comes first
			err = cmp.Or(set.Check(to.shards), occupied)
		}
		return set, err
	}
	return nil, cmp.Or(w.checkLibrary(&dest.Set{}, to.shards), occupied, unoccupied(to.dst, w.force))
}

// checkLibrary returns the error of set.CheckLibrary for a folder that gets the files of w next to the weights.
func (w *copyJob) checkLibrary(set *dest.Set, folder dest.Shared) (err error) {
	var config []byte
	if slices.Contains(w.side, "config.json") {
		config, err = w.sideFile("config.json")
	}
	if err != nil {
		return err
	}
	return set.CheckLibrary(folder, config)
}

// write writes a job for which ready has returned set.
func (c *command) write(verb string, w *copyJob, to copyTarget, set *dest.Set) (_ *copied, err error) {
	var stray []string
	if w.force && !to.named {
		if stray, err = w.strayConfigs(to.folder); err != nil {
			return nil, err
		}
	}
	read := w.read
	if set == nil {
		read = w.readFor(to.dst)
	}
	stop := c.progress(verb, read)
	if set != nil {
		err = set.Write(to.shards)
	} else {
		err = w.save(to.dst, func() error {
			if err := w.unchanged(); err != nil || to.folder != nil && !to.named || storage.IsURL(to.name) {
				return err
			}
			return unoccupied(to.dst, w.force) // another process may have created the file in the meantime
		})
	}
	stop()
	if err != nil {
		return nil, w.withDType(err)
	}
	note := c.noteOf(w)
	w.notes(note)
	c.noteMetadata(to.name, w.src.Name, w.metadata)
	if to.folder == nil || w.config == nil {
		w.noteConfig(note)
	}
	if to.folder == nil {
		w.noteCodes(note)
	}
	if set == nil { // otherwise Write has already written the files, before the index
		if err := w.copyFiles(to.folder); err != nil {
			return nil, dest.WeightsComplete(err)
		}
	}
	c.noteAdapters(w.src.Sources())
	c.noteStray(to.folder, stray)
	return w.written(to.name), nil
}

// noteOf returns the func for notes about a job. If the job copies one of several models of a
// folder, the notes begin with the folder of the model.
func (c *command) noteOf(w *copyJob) func(text string) {
	if w.within == "" {
		return c.opener.Note
	}
	return func(text string) { c.opener.Note(term.Name(w.within) + ": " + text) }
}

// openCopy opens the sources of a copy, and lists the files that --with-files copies.
func (c *command) openCopy(names []string, f *copyFlags) (*copyJob, error) {
	src, err := c.opener.OpenAll(names)
	if err != nil {
		return nil, err
	}
	w, err := jobOf(src, f)
	if err != nil {
		src.Close()
	}
	return w, err
}

// A copied describes what cp has written. Its fields are also the JSON that cp prints.
type copied struct {
	File  string   `json:"file"`  // name on the command line
	Total total    `json:"total"` // totals over all tensors
	Files []string `json:"files"` // names of the other files, sorted
}

func (w *copyJob) written(name string) *copied {
	c := &copied{File: name, Files: append([]string{}, slices.Sorted(slices.Values(w.side))...)}
	for _, t := range w.tensors {
		c.Total.add(listed{Parameters: numbers.Count(t), Bytes: t.Size()})
	}
	return c
}
