package torch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// An Opener says what to take of a file. The funcs of this package are the methods of the
// zero Opener.
type Opener struct {
	// Key is the dict to take, by names and numbers joined by dots, such as
	// "state_dict", "model.ema" or "optimizer.state.0"; also a list, a module or a
	// tensor. If it is empty, that is the top level if that has tensors, else the only
	// dict that has; if there are several, the error lists them.
	Key string

	// Skip is told of the entries of the dict that safetensors cannot hold, and why: a
	// sparse tensor, one quantised by PyTorch, complex128, an object of the program.
	// They are left out. Calls are not concurrent. If Skip is nil, such an entry is an
	// error wrapping [errors.ErrUnsupported].
	Skip func(name string, why error)
}

// Open opens a file, an index like pytorch_model.bin.index.json, or a directory, searched in
// this order: pytorch_model.bin; its index; adapter_model.bin; the only other index or file.
// An index is read by the rules of [safetensors.OpenShards].
//
// It reads the pickle and a few bytes of each storage; tensors are read on demand, and
// have no View. Each file takes a descriptor until Close.
//
// Errors of the system are wrapped, with the name. Bytes that break a rule are a
// *[safetensors.FormatError]. Errors name file, dict and tensor.
func Open(name string) (*safetensors.File, error) { return Opener{}.Open(name) }

// OpenFS opens what Open does, in a file system; "." is its root. A file that is no
// [io.ReaderAt] is read into memory.
func OpenFS(fsys fs.FS, name string) (*safetensors.File, error) { return Opener{}.OpenFS(fsys, name) }

// NewFile opens a file of size bytes that r reads, which must stay readable as long as the
// File is used. Close does not close r.
func NewFile(r io.ReaderAt, size int64) (*safetensors.File, error) { return Opener{}.NewFile(r, size) }

// Keys returns what Opener.Key can be: the dicts, lists and modules in a file that hold
// tensors, each once, outer ones before those within.
func Keys(r io.ReaderAt, size int64) ([]string, error) {
	top, _, err := load(r, size)
	if err != nil {
		return nil, prefix.Add(err)
	}
	var keys []string
	text := 0
	for d := range make(counts).dicts(top, true) {
		if text += len(d.key); text > maxText {
			return nil, prefix.Add(broken("", errTooMuch))
		}
		keys = append(keys, d.key)
	}
	return keys, nil
}

// Open is the func Open, with what o says.
func (o Opener) Open(name string) (*safetensors.File, error) {
	return prefix.Added(o.open(osfile.OS, name))
}

// OpenFS is the func OpenFS, with what o says.
func (o Opener) OpenFS(fsys fs.FS, name string) (*safetensors.File, error) {
	tree, err := osfile.TreeOf(fsys, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(o.open(tree, name))
}

// NewFile is the func NewFile, with what o says.
func (o Opener) NewFile(r io.ReaderAt, size int64) (*safetensors.File, error) {
	c, err := o.read(r, size)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(c.file(nil))
}

// contents are what is taken of a file.
type contents struct {
	tensors  map[string]safetensors.Tensor
	metadata map[string]string // the entries without tensors; nil if there are none
	skipped  []string          // the others
}

// file returns contents as a File, which calls close when it is closed.
func (c *contents) file(close func() error) (*safetensors.File, error) {
	f, err := safetensors.FileOf(c.tensors, c.metadata, close)
	if err != nil { // names that safetensors cannot have
		return nil, broken("", err)
	}
	return f, nil
}

// read returns the contents of a file.
func (o Opener) read(r io.ReaderAt, size int64) (*contents, error) {
	top, file, err := load(r, size)
	if err != nil {
		return nil, err
	}
	d, err := choose(top, o.Key)
	if err != nil {
		return nil, err
	}
	c, err := o.take(d, newViews(file, size))
	if err != nil && d.key != "" {
		err = fmt.Errorf("dict %.200q: %w", d.key, err)
	}
	return c, err
}

// take returns what is in a dict.
func (o Opener) take(d dict, v *views) (*contents, error) {
	f, err := flatten(d)
	if err != nil {
		return nil, broken("", err)
	}
	c := &contents{tensors: make(map[string]safetensors.Tensor, len(f.tensors)), metadata: f.metadata}
	const reserved = "__metadata__" // by the format of safetensors
	for _, name := range f.order {
		if name == reserved {
			f.refused[name] = errors.New("safetensors reserves its name")
			continue
		}
		c.tensors[name], err = v.tensor(f.tensors[name])
		switch why := (prefix.Unsupported{}); {
		case errors.As(err, &why):
			delete(c.tensors, name)
			f.refused[name] = why.Err
		case err != nil:
			return nil, broken(name, err)
		}
	}
	c.skipped = slices.Sorted(maps.Keys(f.refused))
	for _, name := range c.skipped {
		why := prefix.Unsupported{Err: f.refused[name]}
		if o.Skip == nil {
			return nil, fmt.Errorf("entry %.200q: %w", name, why)
		}
		o.Skip(name, why)
	}
	return c, nil
}
