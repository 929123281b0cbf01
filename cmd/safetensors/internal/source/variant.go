package source

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

var errNoVariants = errors.New("a variant is selected in a folder, and this is none")

// A variantFS lists only the files of one variant in a folder.
type variantFS struct {
	*storage.FS
	entries []fs.DirEntry
}

func (v variantFS) ReadDir(string) ([]fs.DirEntry, error) { return v.entries, nil }

// filesIn returns a file system with the files of Variant only, if it is set, where name is
// a folder: x.fp16.safetensors, x.fp16-00001-of-00002.safetensors,
// x.safetensors.index.fp16.json.
func (o *Opener) filesIn(fsys *storage.FS, name string) (fs.FS, error) {
	if o.Variant == "" {
		return fsys, nil
	}
	if name != "." {
		return nil, errNoVariants
	}
	entries, err := fsys.ReadDir(".")
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		name := e.Name()
		return !strings.Contains(name, "."+o.Variant+".") && !strings.Contains(name, "."+o.Variant+"-")
	})
	if len(entries) == 0 {
		return nil, fmt.Errorf("no file of the variant %s in it: %w", term.Name(o.Variant), fs.ErrNotExist)
	}
	return variantFS{fsys, entries}, nil
}
