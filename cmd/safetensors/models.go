package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// oneModel returns an error if one of some sources is a folder with several models, for a verb or a
// flag that takes one model: the others would be left out. takes is a clause for the error, such as
// "merge takes one".
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
		one, n, err := c.openValues(modelAt(name, model), open)
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

// modelAt returns the name on the command line of the model in dir of a folder with this name.
func modelAt(name, dir string) string {
	if dir == "." {
		return name
	}
	return inside(name, dir)
}
