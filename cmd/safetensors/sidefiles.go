package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/dest"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// sideFilesFree returns an error if a local folder has a file that the job would replace by one with
// another content, unless --force allows that. What an earlier copy of the same source has written is
// no obstacle.
func (w *copyJob) sideFilesFree(folder dest.Dir) error {
	if folder == nil || w.force || storage.IsURL(folder.PathOf(".")) {
		return nil
	}
	for _, name := range w.side {
		there, err := folder.Read(name, 128<<20) // more than a file next to the weights may have
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var data []byte
		if err == nil {
			data, err = w.sideFile(name)
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(there, data) {
			return inTheWay{fmt.Errorf("%s exists with another content; --force replaces it", term.Name(folder.PathOf(name)))}
		}
	}
	return nil
}

// An inTheWay is the error for a file next to the weights that may not be replaced.
type inTheWay struct{ error }

// sideFile returns the content of a file next to the weights.
func (w *copyJob) sideFile(name string) ([]byte, error) {
	if name == "config.json" && w.config != nil {
		return w.config, nil
	}
	return w.src.Folder.ReadFile(name)
}

// copyFiles writes the files next to the weights.
func (w *copyJob) copyFiles(folder dest.Dir) error {
	for _, name := range w.side {
		data, err := w.sideFile(name)
		if err != nil {
			return err
		}
		if err := folder.Put(name, data); err != nil {
			return err
		}
	}
	return nil
}
