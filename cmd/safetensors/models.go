package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"

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
		return fmt.Errorf("%s has %s (%s), and %s: name %s%s", storage.Shown(name), found, variant.List(below, 5, term.Name), takes, storage.Word(source.Inside(name, below[0])), advice)
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
	models, err := c.modelsOf(name, open)
	if err != nil {
		return nil, 0, err
	}
	if len(belowOf(models)) == 0 {
		return c.openValues(name, open)
	}
	src, err = openEach(name, models, func(model string) (*source.Checkpoint, error) {
		one, n, err := c.openValues(model, open)
		size += n
		return one, err
	})
	if err == nil {
		c.noteVariants(name, models, src.Sources())
	}
	return src, size, err
}

// modelsOf returns the directories of the models in a source, as Models does. If that fails, it opens
// the source, which fails, too, with a better error.
func (c *command) modelsOf(name string, open func(name string) (*source.Checkpoint, error)) ([]string, error) {
	models, failed := c.opener.Models(name)
	if failed == nil {
		c.noteDefaults(name, models)
		return models, nil
	}
	src, _, err := c.openValues(name, open)
	if err == nil {
		err = errors.Join(failed, src.Close())
	}
	return nil, err
}

// openEach opens the models of a folder by calling open with the name of each, as one source.
func openEach(name string, models []string, open func(name string) (*source.Checkpoint, error)) (*source.Checkpoint, error) {
	var opened []*source.Checkpoint
	for _, model := range models {
		one, err := open(source.ModelAt(name, model))
		if err != nil {
			for _, before := range opened {
				before.Close()
			}
			return nil, err
		}
		opened = append(opened, one)
	}
	return source.Several(name, models, opened), nil
}

// noteVariants notes which models of a folder have only files of a variant, if other models have default files: without a
// variant, diffusers opens only the latter. It notes nothing if a variant is selected. sources has the models, in their order.
func (c *command) noteVariants(name string, models []string, sources []*source.Checkpoint) {
	only := make(map[string][]string) // models by their variants
	for i, src := range sources {
		_, of := src.VariantFile()
		only[of] = append(only[of], models[i])
	}
	if c.opener.Variant != "" || len(only[""]) == 0 {
		return
	}
	delete(only, "")
	for _, of := range slices.Sorted(maps.Keys(only)) {
		c.opener.Note(fmt.Sprintf("%s: %s %s only files of the variant %q", storage.Shown(name), variant.List(only[of], 5, term.Name), term.Either(len(only[of]), "has", "have"), of))
	}
}

// noteDefaults notes the models of a folder that lack the variant of --variant, as Opener.IgnoresVariant reports them.
func (c *command) noteDefaults(name string, models []string) {
	without := slices.DeleteFunc(slices.Clone(models), func(m string) bool { return !c.opener.IgnoresVariant(source.ModelAt(name, m)) })
	have, their := "have", "their"
	switch len(without) {
	case 0:
		return
	case 1:
		have, their = "has", "its"
	}
	c.opener.Note(fmt.Sprintf("%s: %s %s no file of the variant %q, and %s default files are read", storage.Shown(name), variant.List(without, 5, term.Name), have, c.opener.Variant, their))
}
