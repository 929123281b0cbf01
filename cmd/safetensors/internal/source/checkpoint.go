package source

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
)

// A Checkpoint is the tensors of a source. Its tensors can be read until Close.
//
// It is no safetensors.File, which is laid out as a file would be: of another format that
// would change the order that ls shows and writers read in, and refuse a tensor that has
// the name __metadata__, which --rename can change.
type Checkpoint struct {
	Name string // as on the command line
	format.Contents
	Order []string // the names of the tensors, as far as known in the order of the data

	// Files are what it consists of, sorted by name; nil of several sources.
	Files []storage.File

	// Layout is how a folder, an index or a repository holds it; nil of anything else, and
	// of what is put together from pieces.
	Layout *Layout

	// Folder is where it is; nil of what comes without one: a web address, standard
	// input, several sources.
	Folder *storage.Folder

	// Format is that of a single file; nil if the source is more, or may be.
	Format *format.Format

	// Joined says that the tensors are put together from the pieces of several ranks.
	Joined bool

	parts []*Checkpoint // of several sources opened as one
	pins  []storage.Pin // in place of those of Files

	closers []func() error
}

// Close ends the use of a checkpoint, and removes temporary files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range slices.Backward(c.closers) {
		errs = append(errs, f())
	}
	c.closers = nil
	return errors.Join(errs...)
}

// Sources returns the sources that were opened as one, or the checkpoint itself.
func (c *Checkpoint) Sources() []*Checkpoint {
	if c.parts == nil {
		return []*Checkpoint{c}
	}
	return c.parts
}

// Size returns the bytes of all tensors.
func (c *Checkpoint) Size() int64 { return numbers.Bytes(c.Tensors) }

// take makes the tensors of a File those of the checkpoint, which then owns it.
func (c *Checkpoint) take(f *safetensors.File) {
	c.closers = append(c.closers, f.Close)
	c.Metadata = f.Metadata()
	c.Tensors = make(map[string]safetensors.Tensor)
	for name, t := range f.Tensors() {
		c.Tensors[name] = t
		c.Order = append(c.Order, name)
	}
}

// Pins returns the files of a source, and those next to it that were read or listed so
// far. It is an error if the source can change without notice.
func (c *Checkpoint) Pins() (pins []storage.Pin, err error) {
	for i, part := range c.Sources() {
		own := part.pins
		if own == nil {
			for _, f := range part.Files {
				own = append(own, storage.Pin{Name: f.Name, Size: f.Size, Tag: f.Tag})
			}
			own = append(own, part.Folder.Pinned()...)
		}
		for _, p := range own {
			if p.Tag == "" {
				return nil, fmt.Errorf("%s: nothing tells whether %s changes: it has no ETag and no time", storage.Shown(part.Name), term.Name(p.Name))
			}
			if i > 0 {
				p.Name = fmt.Sprintf("%d:%s", i+1, p.Name)
			}
			pins = append(pins, p)
		}
	}
	return pins, nil
}

// Unchanged returns an error if a local file is no longer what it was when the source
// was opened. Objects of a bucket need no look: each answer says what it is of.
func (c *Checkpoint) Unchanged() error {
	for _, part := range c.Sources() {
		for _, f := range part.Files {
			if err := f.Unchanged(); err != nil {
				return fmt.Errorf("%s: %w", storage.Shown(part.Name), err)
			}
		}
	}
	return nil
}
