package main

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/manifest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// weightsAround returns the names of the files of weights in the folder of a source. For a folder with several models, these
// are also the files in the folders below it.
func (c *command) weightsAround(src *source.Checkpoint) ([]string, error) {
	if src.Folder == nil {
		return c.weightsBelow(src.Name)
	}
	return src.Folder.WeightFiles()
}

// weightsBelow returns the names of the files of weights in a folder and below, but none in hidden folders. It returns none
// if the name does not refer to a folder.
func (c *command) weightsBelow(name string) (found []string, err error) {
	files, err := c.opener.Directory(name)
	if err != nil || files == nil {
		return nil, err
	}
	err = fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case !d.IsDir() && storage.OfWeights(strings.ToLower(d.Name())):
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		return nil, c.opener.Named(name, err)
	}
	return found, nil
}

// unlisted returns a finding for each file of weights in all that is neither one of the files of the model nor in the
// manifest. Such files are no errors, because hash does not list them either.
func unlisted(all, files []string, want []manifest.Entry) (found []finding) {
	known := namesIn(want)
	for _, name := range all {
		if !known[name] && !slices.Contains(files, name) {
			found = append(found, finding{name, resultIgnored, "NOT IN THE MANIFEST, beside the model"})
		}
	}
	return found
}

// verifyFiles compares the sums of files in a folder that could not be opened. If a model in it has several files of
// weights, those that the manifest lacks are reported. For any other reason, such as a shard that is cut short, failed is
// the result, after the findings.
func (c *command) verifyFiles(name string, want []manifest.Entry, failed error) error {
	weights, wrong := c.modelFiles(name, failed)
	if wrong != nil && storage.IsURL(name) {
		return failed
	}
	wanted := namesIn(want)
	for _, file := range weights {
		wanted[file] = true
	}
	files, err := c.listed(name, wanted)
	if err != nil || len(files) == 0 {
		return failed
	}
	have, err := c.sums(nil, files, nil)
	if err != nil {
		return err
	}
	c.noteFolder(want, weights)
	v := &verification{File: name, Files: compareSums(want, have.Files, weights)}
	if wrong == nil {
		var all []string
		folder, err := c.opener.FolderOf(name)
		if slices.ContainsFunc(weights, func(file string) bool { return strings.Contains(file, "/") }) { // there are several models
			all, err = c.weightsBelow(name)
		} else if err == nil {
			all, err = folder.WeightFiles()
		}
		if err != nil && !storage.IsURL(name) {
			return err
		}
		v.Files = append(v.Files, unlisted(all, weights, want)...)
	}
	return c.printVerification(v, wrong)
}

// modelFiles returns the names of the files of the models in a folder that could not be opened; failed is the error. If
// failed says that a model has several files of weights, all of them count. Otherwise modelFiles returns failed as wrong,
// because the files of a model that cannot be opened are unknown.
func (c *command) modelFiles(name string, failed error) (files []string, wrong error) {
	if !errors.As(failed, new(*variant.Several)) { // a second try may succeed, but would hide the error of the first one
		return nil, failed
	}
	defer func(note func(string)) { c.opener.Note = note }(c.opener.Note)
	c.opener.Note = nil // the notes have been printed
	models, err := c.opener.Models(name)
	if err != nil {
		return nil, failed
	}
	if len(belowOf(models)) == 0 {
		models = []string{"."}
	}
	for _, model := range models {
		src, err := c.opener.Open(source.ModelAt(name, model))
		several := new(variant.Several)
		switch {
		case err == nil:
			for _, file := range src.Files {
				files = append(files, path.Join(model, file.Name))
			}
			src.Close()
		case errors.As(err, &several):
			for _, file := range several.Names {
				files = append(files, path.Join(model, file))
			}
		default:
			wrong = failed
		}
	}
	return files, wrong
}
