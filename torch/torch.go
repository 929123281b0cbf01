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

// An Opener selects which part of a file is opened. The funcs of this package use the zero Opener.
type Opener struct {
	// Key selects the dict to take, by names and numbers joined by dots, such as "state_dict",
	// "model.ema" or "optimizer.state.0". It may also select a list, a module or a tensor. An empty
	// Key selects the top level if that has tensors, and otherwise the only dict that has tensors;
	// if there are several, the error lists them.
	Key string

	// Skip is called with the name of each entry of the dict that safetensors cannot represent, and
	// the reason. The entry is left out. If why wraps [errors.ErrUnsupported], the entry is a
	// tensor that cannot be read, or contains one: a sparse tensor, a tensor quantised by PyTorch,
	// complex128. Otherwise it is an object of the program without tensors. One Open makes no
	// concurrent calls, even for several files. If Skip is nil, either kind of entry is an error
	// wrapping [errors.ErrUnsupported].
	Skip func(name string, why error)
}

// Open opens a file, an index like pytorch_model.bin.index.json, or a directory. In a directory it
// opens the first of these that exists: pytorch_model.bin; its index; adapter_model.bin;
// diffusion_pytorch_model.bin; its index; the only other index or file; the files of one set of
// shards without an index. The state of a training
// job, such as optimizer.pt or training_args.bin, does not count. An index is read by the rules of
// [safetensors.OpenShards].
//
// Open reads the pickle and a few bytes of each storage. Tensors are read on demand, and have no
// View. Each file takes a descriptor until Close.
//
// An error of the system is wrapped, with the name. If the bytes break a rule, the error is a
// *[safetensors.FormatError], which wraps [io.ErrUnexpectedEOF] if the file is cut short. Errors name
// file, dict and tensor.
func Open(name string) (*safetensors.File, error) { return Opener{}.Open(name) }

// OpenFS opens a file, an index or a directory in a file system, by the rules of Open. The name "."
// is the root. A file that does not implement [io.ReaderAt] is read into memory.
func OpenFS(fsys fs.FS, name string) (*safetensors.File, error) { return Opener{}.OpenFS(fsys, name) }

// NewFile opens the file of size bytes that r reads. r must stay readable as long as the File is
// used. Close does not close r. Errors are those of Open, without the name of a file, and an error
// of r is wrapped.
func NewFile(r io.ReaderAt, size int64) (*safetensors.File, error) { return Opener{}.NewFile(r, size) }

// Keys returns the possible values of Opener.Key: the keys of the dicts, lists and modules in a
// file that hold tensors. Each is listed once, and outer ones come before those within them. Keys
// of about 1,000 bytes or more are left out. Errors are those of NewFile. Keys does not use r after
// it returns.
func Keys(r io.ReaderAt, size int64) ([]string, error) {
	top, _, err := load(r, size, &session{operation: newOperation()})
	if err != nil {
		return nil, prefix.Add(err)
	}
	var keys []string
	text := 0
	c := newContained()
	for d := range c.dicts(top, true) {
		if text += len(d.key); text > maxText {
			return nil, prefix.Add(broken("", errTooMuch))
		}
		keys = append(keys, d.key)
	}
	if c.exhausted() {
		return nil, prefix.Add(broken("", errTooMuch))
	}
	return keys, nil
}

// Open is like the func Open, but uses the settings of o.
func (o Opener) Open(name string) (*safetensors.File, error) {
	return prefix.Added(o.open(osfile.OS, name))
}

// OpenFS is like the func OpenFS, but uses the settings of o.
func (o Opener) OpenFS(fsys fs.FS, name string) (*safetensors.File, error) {
	tree, err := osfile.TreeOf(fsys, name)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(o.open(tree, name))
}

// NewFile is like the func NewFile, but uses the settings of o.
func (o Opener) NewFile(r io.ReaderAt, size int64) (*safetensors.File, error) {
	c, err := o.read(r, size, newOperation())
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(c.file(nil))
}

// A contents holds the part of a file that an Opener has taken.
type contents struct {
	tensors  map[string]safetensors.Tensor
	metadata map[string]string // entries without tensors; nil if there are none
	skipped  []string          // names of the entries that were left out, sorted
}

// file returns the contents as a File, whose Close calls close.
func (c *contents) file(close func() error) (*safetensors.File, error) {
	f, err := safetensors.FileOf(c.tensors, c.metadata, close)
	if err != nil { // a name is not valid in safetensors
		return nil, broken("", err)
	}
	return f, nil
}

// read returns the contents of a file that an operation opens.
func (o Opener) read(r io.ReaderAt, size int64, all *operation) (*contents, error) {
	s := &session{operation: all}
	defer s.close()
	top, file, err := load(r, size, s)
	if err != nil {
		return nil, err
	}
	d, err := choose(top, o.Key)
	if err != nil {
		return nil, err
	}
	c, err := o.take(d, newViews(r, file, size), s)
	if err != nil && d.key != "" {
		err = fmt.Errorf("dict %.200q: %w", d.key, err)
	}
	return c, err
}

// take returns the tensors and the metadata of a dict. It calls Skip for each entry that it leaves
// out.
func (o Opener) take(d dict, v *views, s *session) (*contents, error) {
	f, err := flatten(d, s.operation)
	if err != nil {
		return nil, broken("", err)
	}
	if len(f.parts) > 0 {
		name := slices.Min(slices.Collect(maps.Keys(f.parts)))
		return nil, errPart(name, f.parts[name])
	}
	if err := v.find(f.tensors); err != nil {
		return nil, broken("", err)
	}
	c := &contents{tensors: make(map[string]safetensors.Tensor, len(f.tensors)), metadata: f.metadata}
	const reserved = "__metadata__" // reserved by the format of safetensors
	for _, name := range f.order {
		if name == reserved {
			f.refused[name] = errors.New("this name is reserved for the metadata of safetensors")
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
		switch {
		case o.Skip == nil:
			return nil, fmt.Errorf("entry %.200q: %w; Opener.Skip leaves out such entries", name, why)
		case f.objects[name]:
			o.Skip(name, why.Err)
		default:
			o.Skip(name, why)
		}
	}
	return c, nil
}
