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
	"github.com/gosafetensors/safetensors/internal/variant"
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
	return models, o.ignoreVariant(name, fsys, models)
}

// ignoreVariant makes Open ignore Variant for those models of a folder that have no file of it, if another model has one.
// diffusers does the same: it opens the default files of the components of a pipeline that lack the variant.
func (o *Opener) ignoreVariant(name string, fsys *storage.FS, models []string) error {
	if o.Variant == "" || len(models) < 2 {
		return nil
	}
	var without []string
	for _, model := range models {
		entries, err := fs.ReadDir(fsys, model)
		if err != nil {
			return o.Named(ModelAt(name, model), term.Bare(err))
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if variant.OfVariant(names, o.Variant) == nil {
			without = append(without, model)
		}
	}
	if len(without) == len(models) {
		return nil
	}
	for _, model := range without {
		o.plain.Store(ModelAt(name, model), true)
	}
	return nil
}

// IgnoresVariant reports whether Open ignores Variant for the source with this name. It does so for a model without files of
// the variant, if Models was called for its folder, and another model of this folder has such files.
func (o *Opener) IgnoresVariant(name string) bool {
	_, is := o.plain.Load(name)
	return is
}

// variantOf returns the variant that is selected in a source.
func (o *Opener) variantOf(c *Checkpoint) string {
	if o.IgnoresVariant(c.Name) {
		return ""
	}
	return o.Variant
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

// Inside returns the name of the directory dir within the directory called name, which may be a URL with a query.
func Inside(name, dir string) string {
	query := ""
	if storage.IsURL(name) {
		if i := strings.IndexByte(name, '?'); i >= 0 {
			name, query = name[:i], name[i:]
		}
	}
	return strings.TrimRight(name, "/") + "/" + dir + query
}

// ModelAt returns the name on the command line of the model in dir of a folder with this name.
func ModelAt(name, dir string) string {
	if dir == "." {
		return name
	}
	return Inside(name, dir)
}
