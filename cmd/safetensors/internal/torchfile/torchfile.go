// Package torchfile reads the files of torch.save: .pt, .pth, .bin and .ckpt.
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
// read when the tensor is, in constant memory, whatever its strides, also from a zip
// archive that compresses its storages, as torch.save never does.
package torchfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/strided"
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
	// data returns the data of a storage, whose numbers may be big-endian.
	data(s *storage) (src strided.Source, bigEndian bool, err error)
}

// views makes tensors of the storages.
type views struct {
	storages
	left  int64 // bytes that further tensors may have
	known map[string]charged
}

// A file of some kilobytes can expand one number to terabytes. So its tensors may
// have as many bytes as deflate would allow, or some for small files.
func newViews(file storages, size int64) *views {
	const (
		expansion = 1 << 10
		always    = 1 << 30
	)
	return &views{file, max(always, min(size, math.MaxInt64/expansion)*expansion), make(map[string]charged)}
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
func (v *views) tensor(t *tensor) (safetensors.Tensor, error) {
	shape := t.shape
	switch {
	case t.element.dtype == 0:
		return safetensors.Tensor{}, unsupported{fmt.Errorf("safetensors has no dtype for torch.%s", t.element.name)}
	case t.storage.device == "meta":
		return safetensors.Tensor{}, unsupported{errors.New("it is on the meta device and has no data")}
	case t.element.dtype == safetensors.F4: // the last dimension counts pairs
		if len(shape) == 0 || shape[len(shape)-1] > math.MaxInt/2 {
			return safetensors.Tensor{}, fmt.Errorf("a shape of torch.%s without a dimension to double", t.element.name)
		}
		shape = append(shape[:len(shape)-1:len(shape)-1], 2*shape[len(shape)-1])
	}
	id := fmt.Sprintf("%q %d %d %v %v %v", t.storage.key, t.storage.offset, t.offset, t.element.name, t.shape, t.strides)
	if known, ok := v.known[id]; ok {
		return known.Tensor, v.charge(known)
	}
	made, err := v.layOut(t, shape)
	if err != nil {
		return made.Tensor, err
	}
	v.known[id] = made
	return made.Tensor, v.charge(made)
}

// A charged is a tensor and the bytes that reading it takes.
type charged struct {
	safetensors.Tensor
	bytes int64
}

// charge counts the bytes of a tensor.
func (v *views) charge(t charged) error {
	if t.bytes > v.left {
		return fmt.Errorf("%v is too large for this file: its tensors repeat the same data too often", t)
	}
	v.left -= t.bytes
	return nil
}

// layOut returns the tensor of a view, with that shape.
func (v *views) layOut(t *tensor, shape []int) (charged, error) {
	src, bigEndian, err := v.data(t.storage)
	if err != nil {
		return charged{}, err
	}
	width := int64(t.element.width)
	l := strided.Layout{Width: t.element.width, Shape: t.shape, Strides: make([]int64, len(t.strides))}
	var over bool
	if l.Offset, over = scale(t.offset, t.storage.offset, width); over {
		return charged{}, errors.New("its offset overflows")
	}
	for i, stride := range t.strides {
		if l.Strides[i], over = scale(stride, 0, width); over {
			return charged{}, errors.New("its strides overflow")
		}
	}
	if bigEndian {
		src.Swap = t.element.part
	}
	made, err := strided.NewTensor(t.element.dtype, shape, src, l)
	bytes := made.Size()
	if src.Packed > 0 && bytes > 0 {
		_, bytes = l.Extent() // all before it is unpacked, too
		bytes = max(bytes, made.Size())
	}
	return charged{made, bytes}, err
}

// scale returns (a + b) × width, unless it overflows or is negative.
func scale(a, b, width int64) (n int64, over bool) {
	n = (a + b) * width
	return n, a < 0 || b < 0 || a+b < 0 || n/width != a+b
}
