// Package torch reads the files of torch.save: .pt, .pth, .bin and .ckpt.
//
// Such a file is a pickle, a program that Python executes, with storages next to it.
// Package pickle reads it as data. Of all functions it could call, only those that make
// ordered dicts, shapes, tensors and parameters have a value here; a call of any other
// stays an object that says what would have been called.
//
// # Which tensors
//
// A file may hold one dict of tensors, or several: model, optimizer, epoch. Open takes
// the container that a key selects, such as "state_dict", "model.ema" or
// "optimizer.state.0", or the top level if the key is empty. If the top level holds no
// tensors, the error lists the keys of the containers that do; none is chosen silently,
// even if it is the only one. A tensor in a container within the selected one is named by
// its path, such as "state.0.exp_avg".
//
// Entries without tensors become metadata, a string as it is, the rest as JSON:
// numbers, bools, None, and containers of these. Any other entry, such as an object of
// the program, is in Refused. Attributes, such as the _metadata of a state dict or those
// of a Parameter, are left out, and so is requires_grad.
//
// # Memory
//
// Open reads the pickle, and a few bytes for each storage. The data of a tensor is
// read when the tensor is. In memory are held: matrices that are stored transposed; tensors
// whose elements repeat or overlap; and whole storages that are big-endian, or in a zip archive that
// compresses them, as torch.save never does.
package torch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
)

// Contents are what a file holds.
type Contents struct {
	Tensors  map[string]safetensors.Tensor
	Metadata map[string]string // the entries without tensors; nil if there are none
	Refused  map[string]error  // the other entries, and why each cannot be read
}

// Open returns the contents of a file of size bytes in r, which must stay readable as
// long as the tensors are used. The key selects a dict, a list or a tensor in it, by
// names and numbers joined with dots, which are the names of the tensors in it, too. ctx
// ends Open.
//
// It reads both formats of torch.save: the zip archive, and the stream of pickles
// before PyTorch 1.6. TorchScript and the tar archives before PyTorch 0.2 are errors.
// Tensors that are the same view of one storage are equal for safetensors.Tie.
func Open(ctx context.Context, r io.ReaderAt, size int64, key string) (*Contents, error) {
	c, err := open(ctx, r, size, key)
	if err != nil {
		return nil, fmt.Errorf("torch file: %w", err)
	}
	return c, nil
}

func open(ctx context.Context, r io.ReaderAt, size int64, key string) (*Contents, error) {
	top, file, err := load(ctx, r, size)
	if err != nil {
		return nil, err
	}
	value, name, err := choose(top, key)
	if err != nil {
		return nil, err
	}
	f, err := flatten(value, name)
	if err != nil {
		return nil, err
	}
	return newViews(file, size).of(f)
}

// load returns what a file holds.
func load(ctx context.Context, r io.ReaderAt, size int64) (top any, file storages, err error) {
	const tarMagic = 257 // where a tar archive says that it is one
	head := make([]byte, min(size, tarMagic+5))
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), head); err != nil {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK")):
		return openZip(ctx, r, size)
	case len(head) > 0 && head[0] == pickle.Start:
		return openLegacy(ctx, r, size)
	case len(head) > tarMagic && string(head[tarMagic:]) == "ustar":
		return nil, nil, errors.New("a tar archive, as PyTorch wrote before 0.2; load it with PyTorch and save it again")
	}
	return nil, nil, fmt.Errorf("not made by torch.save: it starts with %q", head[:min(8, len(head))])
}

// storages are the data of a file.
type storages interface {
	data(s *storage) (source, error)
}

// views makes tensors of the storages.
type views struct {
	storages
	left   int64 // bytes that further tensors may have
	wholes map[whole]safetensors.Tensor
}

// A whole is all of a storage, as elements of a dtype.
type whole struct{ key, dtype string }

// A file of some kilobytes can expand one number to terabytes. So its tensors may
// have as many bytes as deflate would allow, or some for small files.
func newViews(file storages, size int64) *views {
	const (
		expansion = 1 << 10
		always    = 1 << 30
	)
	return &views{file, max(always, min(size, math.MaxInt64/expansion)*expansion), make(map[whole]safetensors.Tensor)}
}

// of returns the tensors of views, with the other entries.
func (v *views) of(f *flattened) (*Contents, error) {
	c := &Contents{make(map[string]safetensors.Tensor, len(f.tensors)), f.metadata, f.refused}
	for _, name := range f.order {
		t, err := v.tensor(f.tensors[name])
		switch other := (unsupported{}); {
		case errors.As(err, &other):
			c.Refused[name] = other
		case err != nil:
			return nil, fmt.Errorf("tensor %.200q: %w", name, err)
		default:
			c.Tensors[name] = t
		}
	}
	return c, nil
}

// An unsupported is why a tensor cannot be one of safetensors.
type unsupported struct{ error }

// tensor returns the tensor of a view.
func (v *views) tensor(t *tensor) (made safetensors.Tensor, err error) {
	switch {
	case t.element.dtype == 0:
		return made, unsupported{fmt.Errorf("safetensors has no dtype for torch.%s", t.element.name)}
	case t.storage.device == "meta":
		return made, unsupported{errors.New("it is on the meta device and has no data")}
	}
	src, err := v.data(t.storage)
	if err != nil {
		return made, err
	}
	l := layout{t.storage.offset + t.offset, t.shape, t.strides}
	end, err := l.check(src.size/int64(t.element.width), t.element.width)
	if err != nil {
		return made, err
	}
	id := whole{t.storage.key, t.element.name}
	all, known := v.wholes[id]
	if !known {
		if all, err = src.tensor(t.element); err != nil {
			return made, err
		}
		v.wholes[id] = all
	}
	if made, err = l.view(all, end); err == nil && t.element.dtype == safetensors.F4 {
		made, err = l.pairs(made, all, end)
	}
	if err != nil {
		return made, err
	}
	bytes := made.Size()
	if src.r == nil && bytes > 0 {
		bytes = max(bytes, src.size) // all of it is unpacked
	}
	if bytes > v.left {
		return made, fmt.Errorf("%v is too large for this file: its tensors repeat the same data too often", made)
	}
	v.left -= bytes
	return made, nil
}
