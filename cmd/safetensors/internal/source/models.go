package source

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/hub"
)

// directory returns the directory to which a name refers, or nil if the name does not refer to a
// directory.
func (o *Opener) directory(name string) (*storage.FS, error) {
	name, err := localfile.Path(name)
	if err != nil || name == "-" {
		return nil, err
	}
	if strings.HasPrefix(name, "hf://") {
		repo, revision, file, err := storage.SplitHub(name)
		if err != nil {
			return nil, err
		}
		if dir, err := hub.CacheDir(repo, revision); err == nil {
			name = filepath.Join(dir, filepath.FromSlash(file))
		}
	}
	if !storage.IsURL(name) {
		if info, err := os.Stat(name); err != nil || !info.IsDir() {
			return nil, nil // opening the name returns the error
		}
		return o.Session.Local(name), nil
	}
	if o.Local || strings.HasPrefix(name, "http") {
		return nil, nil
	}
	fsys, file, err := o.Away(name)
	if err != nil || file != "." {
		return nil, err
	}
	return fsys, nil
}

// Models returns the directories of the models in a directory, as checkpoint.Models does. It
// returns none if the name does not refer to a directory, or if there are no models in the
// directory.
func (o *Opener) Models(name string) ([]string, error) {
	fsys, err := o.directory(name)
	if err != nil {
		return nil, o.Named(name, err)
	}
	if fsys == nil {
		return nil, nil
	}
	models, err := checkpoint.Models(fsys, ".")
	if storage.IsFault(err) { // whether the file exists is unknown
		return nil, o.Named(name, term.Bare(err))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.note("%s: it is taken for one model: %v", storage.Shown(name), withoutRoot(term.Bare(err)))
	}
	if err != nil {
		return nil, nil
	}
	return models, nil
}

// FolderOf returns the Folder of the directory to which a name refers.
func (o *Opener) FolderOf(name string) (*storage.Folder, error) {
	fsys, err := o.directory(name)
	if err != nil {
		return nil, err
	}
	if fsys == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return fsys.Folder(true), nil
}

// withoutRoot returns an error about a directory without the name "." that the directory has in its
// own file system.
func withoutRoot(err error) error {
	if at, ok := err.(*fs.PathError); ok && at.Path == "." {
		return at.Err
	}
	return err
}
