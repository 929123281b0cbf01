package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
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
	switch {
	case err != nil:
		return orOnTheHub(name, err)
	case info.IsDir():
		return o.openIn(c, o.Session.Local(name), ".")
	case info.Mode().IsRegular():
		dir, base := filepath.Split(name)
		return o.openIn(c, o.Session.Local(dir), base)
	case o.Variant != "":
		return errNoVariants
	case o.Local: // nobody may write to a pipe
		return errNotLocal
	}
	f, err := localfile.OpenNamed(o.Context, name) // a pipe, as of <(curl …)
	if err != nil {
		return err
	}
	defer f.Close()
	return o.openStream(c, f)
}

// openStream opens what can be read once only, from start to end. It goes to a
// temporary file, because the tensors are needed in another order than they come.
func (o *Opener) openStream(c *Checkpoint, r io.Reader) error {
	if f, ok := r.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			c.Files = []storage.File{o.OfReader("-", f, info.Size())}
			return o.openReader(c, o.Meter(f), info.Size(), "")
		}
	}
	temp, size, err := o.Spool(r)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, temp.Close)
	c.Files = []storage.File{o.OfReader("-", temp, size)}
	return o.openReader(c, o.Meter(temp), size, "")
}
