// Package source opens what a command reads: checkpoints in files and folders, on
// hubs, on web servers, in buckets and from standard input.
package source

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/hub"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/variant"
	"github.com/gosafetensors/safetensors/torch"
)

// An Opener opens the sources of one run of the command.
type Opener struct {
	storage.Session

	// Stdin is read for the name "-".
	Stdin io.Reader

	// Key selects the tensors of PyTorch files that hold several dicts of them.
	Key string

	// Variant, if not "", selects the files of a variant in folders: fp16.
	Variant string

	// Local refuses what is not in the files of this machine. A repository of the hub
	// may be in its cache.
	Local bool

	// Note is told what Open leaves out of a source, in a sentence. It may be nil.
	Note func(text string)
}

// Open opens a source by its name. Its Refused are told to Note.
func (o *Opener) Open(name string) (*Checkpoint, error) {
	c, err := o.openOne(name)
	if err != nil {
		return nil, err
	}
	const most = 10
	for i, entry := range slices.Sorted(maps.Keys(c.Refused)) {
		if i == most {
			o.note("%s: %d more entries are left out", storage.Shown(name), len(c.Refused)-most)
			break
		}
		o.note("%s: %s is left out: %v", storage.Shown(name), term.Name(entry), c.Refused[entry])
	}
	return c, nil
}

func (o *Opener) note(format string, args ...any) {
	if o.Note != nil {
		o.Note(fmt.Sprintf(format, args...))
	}
}

func (o *Opener) openOne(name string) (*Checkpoint, error) {
	c := &Checkpoint{Name: name}
	if err := o.open(c, name); err != nil {
		c.Close()
		return nil, o.Named(name, err)
	}
	return c, nil
}

// open opens a source by the form of its name.
func (o *Opener) open(c *Checkpoint, name string) error {
	name, err := localfile.Path(name)
	switch {
	case err != nil:
		return err
	case o.Local && (name == "-" || storage.IsURL(name) && !strings.HasPrefix(name, "hf://")):
		return errNotLocal
	case o.Variant != "" && name == "-":
		return errNoVariants
	case name == "-":
		return o.openStream(c, o.Stdin)
	case strings.HasPrefix(name, "hf://"):
		if found, err := o.openCached(c, name); found || err != nil {
			return err
		}
	case !storage.IsURL(name):
		return o.openLocal(c, name)
	}
	fsys, file, err := o.Away(name)
	if err != nil {
		return err
	}
	return o.openIn(c, fsys, file)
}

// openCached opens a repository of the hub from the cache of the Python tools, if it is there.
func (o *Opener) openCached(c *Checkpoint, name string) (found bool, err error) {
	repo, revision, file, err := storage.SplitHub(name)
	if err != nil {
		return false, err
	}
	dir, err := hub.CacheDir(repo, revision)
	if err == nil {
		c.pins = []storage.Pin{{Name: path.Join(repo, file), Tag: filepath.Base(dir)}} // a commit
		at := filepath.Join(dir, filepath.FromSlash(file))
		err = o.openLocal(c, at)
		if err == nil && o.Variant == "" && c.Layout != nil {
			o.noteVariant(c)
		}
		if err == nil && !o.Local && c.Folder != nil {
			if info, err := os.Stat(at); err == nil && !info.IsDir() {
				file = path.Dir(file)
			}
			c.Folder.CompleteFrom(repo, filepath.Base(dir), file)
		}
	}
	if !errors.Is(err, fs.ErrNotExist) { // else the cache has not all of the repository
		return true, err
	}
	if o.Local {
		return false, errNotLocal
	}
	return false, nil
}

// noteVariant says so if the cache holds a variant without the model: diffusers downloads only
// what it is asked for.
func (o *Opener) noteVariant(c *Checkpoint) {
	for _, file := range c.Files {
		if (variant.Endings{".safetensors", ".bin"}).Of(file.Name) != "" {
			o.note("%s: the cache has only %s", storage.Shown(c.Name), term.Name(file.Name))
			return
		}
	}
}

// openIn opens a file or an index in a folder, wherever that is, or the folder itself.
func (o *Opener) openIn(c *Checkpoint, fsys *storage.FS, name string) error {
	if fsys.Commit != nil {
		c.pins = []storage.Pin{*fsys.Commit}
	}
	several := name == "." || strings.HasSuffix(name, ".index.json") || storage.IsIndex(name) || storage.IsTorchIndex(name)
	c.Folder = fsys.Folder(several)
	switch {
	case o.Variant != "" && name != ".":
		return errNoVariants
	case !several:
		return o.openFile(c, fsys, name)
	}
	in, err := o.filesIn(fsys)
	if err != nil {
		return err
	}
	f, err := o.openFolder(c, in, name)
	if err != nil {
		return err
	}
	c.take(f)
	if c.Files = fsys.Opened(); !c.Joined {
		c.Layout = layoutOf(f, name, c.Files)
	}
	return nil
}

// openFile opens one file, of whatever format.
func (o *Opener) openFile(c *Checkpoint, fsys *storage.FS, name string) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	c.closers = append(c.closers, f.Close)
	c.Files = fsys.Opened()
	return o.openReader(c, f.(io.ReaderAt), c.Files[0].Size, name)
}

var errNotLocal = errors.New("is not a file of this machine")

// Keys returns what Key can be for a PyTorch file of this machine, at most limit keys.
func (o *Opener) Keys(name string, limit int) ([]string, error) {
	name, err := localfile.Path(name)
	if err != nil {
		return nil, err
	}
	f, size, err := osfile.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if format.Of(f, size, name) != format.Torch { // which alone has any
		return nil, nil
	}
	keys, err := torch.Keys(o.Meter(f), size)
	return keys[:min(limit, len(keys))], err
}

// openReader opens a file of whatever format.
func (o *Opener) openReader(c *Checkpoint, r io.ReaderAt, size int64, name string) error {
	c.Format = format.Of(r, size, name)
	if c.Format.Open == nil {
		f, err := safetensors.NewFile(r, size)
		if err == nil {
			c.take(f)
		}
		return err
	}
	read, err := c.Format.Open(r, size, o.Key)
	if err != nil {
		return mistaken(c.Format, r, size, err)
	}
	c.Contents = *read
	c.Order = slices.Sorted(maps.Keys(c.Tensors))
	return nil
}

// mistaken returns the error of a format, and what a file is in its place that only its
// name says to be of the format: package safetensors knows Git LFS pointers, pages of
// HTML and files of other programs.
func mistaken(f *format.Format, r io.ReaderAt, size int64, err error) error {
	var broken *safetensors.FormatError
	if _, other := safetensors.NewFile(r, size); !f.Recognizes(r, size) && errors.As(other, &broken) {
		return fmt.Errorf("%w; %w", term.Bare(err), broken)
	}
	return err
}

// OpenAll opens several sources as one. A tensor in two of them is an error.
// Metadata is that of all; of two values for a key, the first counts. Their Refused are
// left to the caller.
func (o *Opener) OpenAll(names []string) (*Checkpoint, error) {
	if len(names) == 1 {
		return o.openOne(names[0])
	}
	all := &Checkpoint{Name: strings.Join(names, " ")}
	all.Tensors, all.Refused = make(map[string]safetensors.Tensor), make(map[string]error)
	from := make(map[string]string)
	for _, name := range names {
		c, err := o.openOne(name)
		if err != nil {
			all.Close()
			return nil, err
		}
		all.closers = append(all.closers, c.Close)
		all.parts = append(all.parts, c)
		for _, tensor := range c.Order {
			if other, ok := from[tensor]; ok {
				all.Close()
				return nil, fmt.Errorf("tensor %q is in %s and in %s", tensor, storage.Shown(other), storage.Shown(name))
			}
			from[tensor] = name
			all.Tensors[tensor] = c.Tensors[tensor]
			all.Order = append(all.Order, tensor)
		}
		maps.Copy(all.Refused, c.Refused)
		if merged := maps.Clone(c.Metadata); len(merged) > 0 {
			maps.Copy(merged, all.Metadata)
			all.Metadata = merged
		}
	}
	return all, nil
}
