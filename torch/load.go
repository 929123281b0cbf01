package torch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// load returns what a file holds. Its errors are those of the bytes, or of the reader.
func load(r io.ReaderAt, size int64) (top any, data storages, err error) {
	switch {
	case r == nil:
		return nil, nil, errors.New("the io.ReaderAt of a file is nil")
	case size < 0: // perhaps a Content-Length
		return nil, nil, fmt.Errorf("a file of %d bytes", size)
	}
	if top, data, err = loadMarked(marked{r}, size); err != nil {
		return nil, nil, broken("", err)
	}
	return top, data, nil
}

func loadMarked(r io.ReaderAt, size int64) (top any, data storages, err error) {
	const tarMagic = 257 // where a tar archive says that it is one
	head := make([]byte, min(size, tarMagic+5))
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), head); err != nil {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte("PK")):
		return openZip(r, size)
	case len(head) > 0 && head[0] == pickle.Start:
		return openLegacy(r, size)
	case len(head) > tarMagic && string(head[tarMagic:]) == "ustar":
		return nil, nil, errors.New("a tar archive, as PyTorch wrote before 0.2; load it with PyTorch and save it again")
	}
	return nil, nil, fmt.Errorf("not made by torch.save: it starts with %q", head[:min(8, len(head))])
}

// storages returns the data of a storage of a file.
type storages func(s *storage) (source, error)

// views makes tensors of the storages.
type views struct {
	data   storages
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

// tensor returns the tensor of a view.
func (v *views) tensor(t *tensor) (made safetensors.Tensor, err error) {
	switch {
	case t.dtype == 0:
		return made, prefix.Unsupported{Err: fmt.Errorf("safetensors has no dtype for torch.%s", t.Name)}
	case t.storage.device == "meta":
		return made, prefix.Unsupported{Err: errors.New("it is on the meta device and has no data")}
	}
	src, err := v.data(t.storage)
	if err != nil {
		return made, err
	}
	l := layout{t.storage.offset + t.offset, t.shape, t.strides}
	end, err := l.check(src.size/int64(t.Width), t.Width)
	if err != nil {
		return made, err
	}
	id := whole{t.storage.key, t.Name}
	all, known := v.wholes[id]
	if !known {
		if all, err = src.tensor(t.element); err != nil {
			return made, err
		}
		v.wholes[id] = all
	}
	if made, err = l.view(all, end); err == nil && t.dtype == safetensors.F4 {
		made, err = l.pairs(made, all, end)
	}
	if err != nil {
		return made, err
	}
	bytes := made.Size()
	if src.compressed && bytes > 0 {
		bytes = max(bytes, src.size) // all of it may be unpacked again
	}
	if bytes > v.left {
		return made, fmt.Errorf("%v is too large for this file: its tensors repeat the same data too often", made)
	}
	v.left -= bytes
	return made, nil
}
