package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
)

// orOnTheHub adds to an error how a name is written that may be one of the hub.
func orOnTheHub(name string, err error) error {
	_, owner := os.Stat(filepath.Dir(name))
	if path, ok := err.(*fs.PathError); ok && errors.Is(err, fs.ErrNotExist) && errors.Is(owner, fs.ErrNotExist) && repository.MatchString(name) {
		path.Err = fmt.Errorf("%w; on the hub it is hf://%s", path.Err, name)
	}
	return err
}

// repository matches names that a repository on the hub can have.
var repository = regexp.MustCompile(`^[\w-][\w.-]*/[\w-][\w.-]*$`)

// openLocal opens a file, an index or a folder. Files are read, not mapped: the pages
// of a mapping count as memory of the process, and a cancelled context could not end
// their reading.
func (o *Opener) openLocal(c *Checkpoint, name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return orOnTheHub(name, err)
	}
	switch {
	case info.IsDir():
		c.Folder = o.wholeFolder(localFS(name))
		return o.openIn(c, localFS(name), ".", func(file string) string { return filepath.Join(name, filepath.FromSlash(file)) })
	case o.Variant != "":
		return errNoVariants
	case !info.Mode().IsRegular() && o.Local: // nobody may write to a pipe
		return errNotLocal
	case !info.Mode().IsRegular(): // a pipe, as of <(curl …)
		f, err := localfile.OpenNamed(o.Context, name)
		if err != nil {
			return err
		}
		defer f.Close()
		return o.openStream(c, f)
	case strings.HasSuffix(name, ".index.json"), IsIndex(name), IsTorchIndex(name):
		dir := filepath.Dir(name)
		c.Folder = o.wholeFolder(localFS(dir))
		return o.openIn(c, localFS(dir), filepath.Base(name), func(file string) string { return filepath.Join(dir, filepath.FromSlash(file)) })
	}
	c.Folder = folderOf(localFS(filepath.Dir(name)))
	return o.openFile(c, name)
}

// openFile opens one regular file, of whatever format.
func (o *Opener) openFile(c *Checkpoint, name string) error {
	f, info, err := localfile.Open(name)
	if err != nil {
		return err
	}
	c.onClose(f.Close)
	c.Files = []File{{
		Name: filepath.Base(name),
		Path: name,
		Size: info.Size(),
		Tag:  tagOf(info),
		Open: func() (io.ReadCloser, error) {
			return meteredFS{FS: localFS(filepath.Dir(name)), o: o}.reopen(filepath.Base(name), tagOf(info))
		},
	}}
	return o.openReader(c, o.meter(f), info.Size(), name)
}

// A localFS is a folder of the operating system. Unlike os.DirFS, it opens regular files
// only.
type localFS string

func (f localFS) path(name string) string { return filepath.Join(string(f), filepath.FromSlash(name)) }

func (f localFS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(f.path(name)) }
func (f localFS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(f.path(name)) }

func (f localFS) Open(name string) (fs.File, error) {
	file, _, err := localfile.Open(f.path(name))
	if err != nil {
		return nil, err
	}
	return file, nil
}
