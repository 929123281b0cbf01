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
	"github.com/gosafetensors/safetensors/internal/variant"
)

// A Checkpoint is an opened source: its tensors, its metadata, and the files that contain them. Its
// tensors can be read until Close.
//
// It is not a safetensors.File, because a File is laid out like a file. For a source in another
// format, that would change the order of the tensors, in which ls lists them and writers read them.
// It would also refuse a tensor with the name __metadata__, which --rename can change.
type Checkpoint struct {
	Name string // name on the command line
	format.Contents
	Order []string // names of the tensors, as far as known in the order of the data

	// Files are the files of the source, sorted by name; nil for several sources.
	Files []storage.File

	// Layout describes how the files of a folder, an index or a repository hold the checkpoint. It
	// is nil for any other source, and for a checkpoint that is joined from pieces.
	Layout *Layout

	// Unlisted are the sorted names of the tensors in shards that the index does not list. They are not among Tensors.
	Unlisted []string

	// Folder is the folder of the source. It is nil for a source without a folder: a web address,
	// standard input, several sources.
	Folder *storage.Folder

	// Format is the format of a single file. It is nil if the source may have several files.
	Format *format.Format

	// Joined reports whether the tensors are joined from the pieces of several ranks.
	Joined bool

	parts []*Checkpoint // the sources, if several were opened as one
	pins  []storage.Pin // pins that replace those of Files, or nil

	keyless bool // whether Key does not apply, because the tensors are at the top level of a file of PyTorch

	closers []func() error
}

// Close closes the files of a checkpoint, and removes temporary files.
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

// Unread returns the sorted names of the tensors in the source that cannot be read. The other names
// in Refused are those of objects without tensors, on which no verdict depends.
func (c *Checkpoint) Unread() (names []string) {
	for name, why := range c.Refused {
		if errors.Is(why, errors.ErrUnsupported) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// VariantFile returns the name of the first file of the source that belongs to a variant of a model, and the variant. Both are
// "" if there is none.
func (c *Checkpoint) VariantFile() (name, of string) {
	for _, file := range c.Files {
		if of := (variant.Endings{".safetensors", ".bin"}).Of(file.Name); of != "" {
			return file.Name, of
		}
	}
	return "", ""
}

// Size returns the total size of the tensors in bytes.
func (c *Checkpoint) Size() int64 { return numbers.Bytes(c.Tensors) }

// take moves the tensors of a File into the checkpoint, which then owns the File.
func (c *Checkpoint) take(f *safetensors.File) {
	c.closers = append(c.closers, f.Close)
	c.Metadata = f.Metadata()
	c.Tensors = make(map[string]safetensors.Tensor)
	for name, t := range f.Tensors() {
		c.Tensors[name] = t
		c.Order = append(c.Order, name)
	}
}

// OfTorch reports whether PyTorch has written the source, or one of several sources, in one of
// PyTorch's own formats. The safetensors files of ranks are not in such a format.
func (c *Checkpoint) OfTorch() bool {
	return slices.ContainsFunc(c.Sources(), func(one *Checkpoint) bool {
		ranks := one.Joined && !slices.ContainsFunc(one.Files, func(f storage.File) bool { return isSafetensors(f.Name) })
		return ranks || one.Format == format.Torch || one.Layout != nil && !one.Layout.Plain &&
			slices.ContainsFunc(one.Layout.Files, func(f storage.File) bool { return isTorch(f.Name) })
	})
}

// Pins returns the pins of the files of a source, and of those files next to it that were read or
// listed so far. It is an error if the source could change unnoticed.
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
				return nil, fmt.Errorf("%s: it cannot be known whether %s changes: it has no ETag and no time", storage.Shown(part.Name), term.Name(p.Name))
			}
			if i > 0 {
				p.Name = fmt.Sprintf("%d:%s", i+1, p.Name)
			}
			pins = append(pins, p)
		}
	}
	return pins, nil
}

// Unchanged returns an error if a local file has changed since the source was opened. Objects of a
// bucket need no check, because each answer identifies the object.
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
