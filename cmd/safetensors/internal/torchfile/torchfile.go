// Package torchfile reads the files of torch.save: .pt, .pth and .bin.
//
// Such a file is a pickle, a program that Python executes, with storages beside it.
// Here it is only interpreted: the opcodes that build dicts, lists, tuples, strings
// and numbers, and by name the functions that make tensors of them. Everything else
// is an error that names it, and nothing of it is ever called.
//
// # Which tensors
//
// A file may hold one dict of tensors, or others beside it: model, optimizer, epoch.
// Open takes the dict that a key selects, such as "state_dict" or "model.ema", or the
// top level if the key is empty and there are tensors. If there are none, the error
// lists the keys of the dicts that have some; none is chosen silently, even if it is
// the only one.
//
// Numbers, strings, bools and None beside the tensors become metadata, as text under
// their own keys, numbers as in JSON and None as null. Anything else beside them is an
// error. Attributes, such as the _metadata of a state dict or what a Parameter has,
// are left out, and so is requires_grad.
//
// # Memory
//
// Open reads the pickle, and a few bytes for each storage. The data of a tensor is
// read when the tensor is, in constant memory, whatever its strides. The storages of
// a zip archive that compresses them, as torch.save never does, are unpacked into
// memory one at a time.
package torchfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/strided"
)

// Open returns the tensors and the metadata of a file of size bytes in r, which must
// stay readable as long as the tensors are used. The key selects a dict in it, by
// names joined with dots.
//
// It reads both formats of torch.save: the zip archive, and the stream of pickles
// before PyTorch 1.6. TorchScript and the tar archives before PyTorch 0.2 are errors.
// Tensors that are the same view of one storage are equal for safetensors.Tie.
func Open(r io.ReaderAt, size int64, key string) (map[string]safetensors.Tensor, map[string]string, error) {
	tensors, metadata, err := open(r, size, key)
	if err != nil {
		return nil, nil, fmt.Errorf("torch file: %w", err)
	}
	return tensors, metadata, nil
}

func open(r io.ReaderAt, size int64, key string) (map[string]safetensors.Tensor, map[string]string, error) {
	const tarMagic = 257 // where a tar archive says that it is one
	head := make([]byte, min(size, tarMagic+5))
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), head); err != nil {
		return nil, nil, err
	}
	var top any
	var file storages
	var err error
	switch {
	case bytes.HasPrefix(head, []byte("PK")):
		top, file, err = openZip(r, size)
	case len(head) > 0 && head[0] == opProto:
		top, file, err = openLegacy(r, size)
	case len(head) > tarMagic && string(head[tarMagic:]) == "ustar":
		err = errors.New("a tar archive, as PyTorch wrote before 0.2; load it with PyTorch and save it again")
	default:
		err = fmt.Errorf("not made by torch.save: it starts with %q", head[:min(8, len(head))])
	}
	if err != nil {
		return nil, nil, err
	}
	d, err := choose(top, key)
	if err != nil {
		return nil, nil, err
	}
	return newViews(file, size).of(d)
}

// storages are the data of a file.
type storages interface {
	// tensor returns what layOut makes of the data of a storage.
	tensor(s *storage, layOut layOut) (safetensors.Tensor, error)
}

// A layOut makes a tensor of the size bytes of a storage, whose numbers may be
// big-endian. It does not read them.
type layOut func(r io.ReaderAt, size int64, bigEndian bool) (safetensors.Tensor, error)

// views makes tensors of the storages.
type views struct {
	storages
	left  int64 // bytes that further tensors may have
	known map[string]safetensors.Tensor
}

// A file of some kilobytes can expand one number to terabytes. So its tensors may
// have as many bytes as deflate would allow, or some for small files.
func newViews(file storages, size int64) *views {
	const (
		expansion = 1 << 10
		always    = 1 << 30
	)
	return &views{file, max(always, min(size, math.MaxInt64/expansion)*expansion), make(map[string]safetensors.Tensor)}
}

// of returns the tensors of a dict, and the rest of it as metadata.
func (v *views) of(d *dict) (map[string]safetensors.Tensor, map[string]string, error) {
	tensors := make(map[string]safetensors.Tensor)
	var metadata map[string]string
	for _, e := range d.entries {
		name, ok := e.key.(string)
		if !ok {
			return nil, nil, fmt.Errorf("a key of the dict is %s, not a string", describe(e.key))
		}
		if t, ok := e.value.(*tensor); ok {
			var err error
			if tensors[name], err = v.tensor(t); err != nil {
				return nil, nil, fmt.Errorf("tensor %.200q: %w", name, err)
			}
			continue
		}
		text, ok := metadataText(e.value)
		if !ok {
			return nil, nil, fmt.Errorf("entry %.200q is %s, not a tensor", name, describe(e.value))
		}
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[name] = text
	}
	return tensors, metadata, nil
}

// tensor returns the tensor of a view.
func (v *views) tensor(t *tensor) (safetensors.Tensor, error) {
	shape := t.shape
	switch {
	case t.element.dtype == 0:
		return safetensors.Tensor{}, fmt.Errorf("safetensors has no dtype for torch.%s", t.element.name)
	case t.storage.device == "meta":
		return safetensors.Tensor{}, errors.New("it is on the meta device and has no data")
	case t.element.dtype == safetensors.F4: // the last dimension counts pairs
		if len(shape) == 0 || shape[len(shape)-1] > math.MaxInt/2 {
			return safetensors.Tensor{}, fmt.Errorf("a shape of torch.%s without a dimension to double", t.element.name)
		}
		shape = append(shape[:len(shape)-1:len(shape)-1], 2*shape[len(shape)-1])
	}
	id := fmt.Sprintf("%q %d %d %v %v %v", t.storage.key, t.storage.offset, t.offset, t.element.name, t.shape, t.strides)
	if known, ok := v.known[id]; ok {
		return known, v.charge(known)
	}
	made, err := v.storages.tensor(t.storage, func(r io.ReaderAt, size int64, bigEndian bool) (safetensors.Tensor, error) {
		return t.layOut(r, size, bigEndian, shape)
	})
	if err != nil {
		return safetensors.Tensor{}, err
	}
	v.known[id] = made
	return made, v.charge(made)
}

// charge counts the bytes of a tensor.
func (v *views) charge(t safetensors.Tensor) error {
	if t.Size() > v.left {
		return fmt.Errorf("%v is too large for this file: its tensors repeat the same data too often", t)
	}
	v.left -= t.Size()
	return nil
}

// layOut returns the tensor in the size bytes of its storage.
func (t *tensor) layOut(r io.ReaderAt, size int64, bigEndian bool, shape []int) (safetensors.Tensor, error) {
	if bigEndian {
		r = strided.Swap(r, size, t.element.part)
	}
	width := int64(t.element.width)
	l := strided.Layout{Width: t.element.width, Shape: t.shape, Strides: make([]int64, len(t.strides))}
	var over bool
	if l.Offset, over = scale(t.offset, t.storage.offset, width); over {
		return safetensors.Tensor{}, errors.New("its offset overflows")
	}
	for i, stride := range t.strides {
		if l.Strides[i], over = scale(stride, 0, width); over {
			return safetensors.Tensor{}, errors.New("its strides overflow")
		}
	}
	view, err := strided.NewReader(r, size, l)
	if err != nil {
		return safetensors.Tensor{}, err
	}
	return safetensors.NewTensorAt(t.element.dtype, shape, view)
}

// scale returns (a + b) × width, unless it overflows or is negative.
func scale(a, b, width int64) (n int64, over bool) {
	n = (a + b) * width
	return n, a < 0 || b < 0 || a+b < 0 || n/width != a+b
}
