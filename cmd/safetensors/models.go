package main

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// copyModels copies all models of a directory, if it is the only source and has several: a pipeline
// of diffusers, or a model of sentence-transformers with weights in its modules. Otherwise it
// copies the sources as one model.
func (c *command) copyModels(names []string, name string, f *copyFlags) (*copied, error) {
	if len(names) > 1 {
		if err := c.oneModel(names, "cp joins single models"); err != nil {
			return nil, err
		}
		return c.copyOne(names, name, f, nil)
	}
	models, err := c.opener.Models(names[0])
	if err != nil {
		return nil, err
	}
	main := slices.Index(models, ".")
	below := belowOf(models)
	if len(below) == 0 {
		return c.copyOne(names, name, f, nil)
	}
	dst, err := c.openDestination(name, f.maxShardSize, f.ranks)
	if err != nil {
		return nil, err
	}
	folder, ok := dst.(dest.Shared)
	switch {
	case !ok && main < 0:
		return nil, fmt.Errorf("%s has several models (%s), and %s is one file", storage.Shown(names[0]), variant.List(below, 5, term.Name), term.Name(name))
	case !ok || f.ranks != 0:
		c.opener.Note(fmt.Sprintf("the weights in %s are left out: only a folder has room for several models", variant.List(below, 5, term.Name)))
		return c.copyOne(names, name, f, below)
	}
	unlock, err := folder.Lock(false)
	if err != nil {
		return nil, err
	}
	defer unlock()
	all := &copied{File: name, Files: []string{}}
	add := func(some *copied, dir string) {
		all.Total.Tensors += some.Total.Tensors
		all.Total.Parameters += some.Total.Parameters
		all.Total.Bytes += some.Total.Bytes
		for _, file := range some.Files {
			all.Files = append(all.Files, path.Join(dir, file))
		}
	}
	for _, model := range below {
		flags := *f
		if main >= 0 { // the flags name tensors and layouts of the main model
			flags.only, flags.except, flags.renames, flags.targets = nil, nil, nil, nil
			flags.dequantize, flags.quantize, flags.plain, flags.tie = "", "", 0, false
			if err := flags.check(); err != nil {
				return nil, err
			}
		}
		some, err := c.copyOne([]string{inside(names[0], model)}, inside(name, model), &flags, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", term.Name(model), err)
		}
		add(some, model)
	}
	switch {
	case main >= 0:
		some, err := c.copyOne(names, name, f, below)
		if err != nil {
			return nil, err
		}
		add(some, "")
	case f.withFiles:
		some, err := c.copyAround(names[0], folder, below)
		if err != nil {
			return nil, fmt.Errorf("the weights are complete, but not the files next to them: %w", err)
		}
		add(some, "")
	}
	slices.Sort(all.Files)
	return all, nil
}

// oneModel returns an error if one of some sources is a folder with several models, for a verb or a
// flag that takes one model: the others would be left out. takes is a clause for the error, such as "merge takes
// one".
func (c *command) oneModel(names []string, takes string) error {
	for _, name := range names {
		models, err := c.opener.Models(name)
		if err != nil {
			return err
		}
		below := belowOf(models)
		if len(models) < 2 {
			continue
		}
		found, advice := "several models", ""
		if len(below) < len(models) {
			found, advice = "models in it and below", ", or a file or an index in "+storage.Shown(name)
		}
		return fmt.Errorf("%s has %s (%s), and %s: name %s%s", storage.Shown(name), found, variant.List(below, 5, term.Name), takes, storage.Shown(inside(name, below[0])), advice)
	}
	return nil
}

// belowOf returns the models of a folder that are in folders below it.
func belowOf(models []string) []string {
	return slices.DeleteFunc(slices.Clone(models), func(m string) bool { return m == "." })
}

// openAll opens a source. If the source is a directory, openAll opens all models in it, and names of tensors of a
// model in a sub-directory start with that. If --dequantize is set, each model is dequantised by its own config.
func (c *command) openAll(name string, open func(name string) (*source.Checkpoint, error)) (src *source.Checkpoint, size int64, err error) {
	models, failed := c.opener.Models(name)
	if failed != nil { // opening the source fails, too, with a better error
		if src, _, err = c.openValues(name, open); err == nil {
			err = errors.Join(failed, src.Close())
		}
		return nil, 0, err
	}
	if len(models) == 0 || len(models) == 1 && models[0] == "." {
		return c.openValues(name, open)
	}
	var opened []*source.Checkpoint
	for _, model := range models {
		at := name
		if model != "." {
			at = inside(name, model)
		}
		one, n, err := c.openValues(at, open)
		if err != nil {
			for _, before := range opened {
				before.Close()
			}
			return nil, 0, err
		}
		opened = append(opened, one)
		size += n
	}
	return source.Several(name, models, opened), size, nil
}

// copyAround copies the small files of a directory that has no model of its own.
func (c *command) copyAround(name string, to dest.Shared, skip []string) (*copied, error) {
	from, err := c.opener.FolderOf(name)
	if err != nil {
		return nil, err
	}
	files, err := from.SideFiles()
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(name string) bool { return isBelow(name, skip) })
	c.noteTooLarge(slices.DeleteFunc(from.TooLarge(), func(file storage.Pin) bool { return isBelow(file.Name, skip) }))
	for _, file := range files {
		data, err := from.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := to.Put(file, data); err != nil {
			return nil, err
		}
	}
	return &copied{Files: files}, nil
}

// isBelow reports whether a file is in one of the directories dirs, or below.
func isBelow(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
}

// inside returns the name of a directory within another one. That one may be a URL with a query.
func inside(name, dir string) string {
	query := ""
	if storage.IsURL(name) {
		if i := strings.IndexByte(name, '?'); i >= 0 {
			name, query = name[:i], name[i:]
		}
	}
	return strings.TrimRight(name, "/") + "/" + dir + query
}
