package torch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/rankfile"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// load returns the object in a file, and the storages that it refers to. It waits until s may read
// the pickle. An error is about the bytes of the file, or comes from the reader.
func load(r io.ReaderAt, size int64, s *session) (top any, data storages, err error) {
	switch {
	case r == nil:
		return nil, nil, errors.New("the io.ReaderAt of a file is nil")
	case size < 0: // a Content-Length may be -1
		return nil, nil, fmt.Errorf("a file of %d bytes", size)
	}
	if top, data, err = loadMarked(marked{r}, size, s); err != nil {
		return nil, nil, broken("", err)
	}
	return top, data, nil
}

// loadMarked recognizes the format of a file, and opens it.
func loadMarked(r io.ReaderAt, size int64, s *session) (top any, data storages, err error) {
	const tarMagic = 257 // offset of the magic number of a tar archive
	head := make([]byte, min(size, tarMagic+5))
	if _, err := io.ReadFull(io.NewSectionReader(r, 0, size), head); err != nil {
		return nil, nil, err
	}
	switch {
	case len(head) == 0:
		return nil, nil, prefix.Foreign{Err: prefix.Truncated{Err: errors.New("the file is empty")}}
	case bytes.HasPrefix(head, []byte("PK")):
		return openZip(r, size, s)
	case head[0] == pickle.Start:
		s.start(min(size, pickle.MaxSize)) // a legacy file does not record the size of its pickles
		return openLegacy(r, size)
	case len(head) > tarMagic && string(head[tarMagic:]) == "ustar":
		return nil, nil, errors.New("a tar archive, as PyTorch wrote before 0.2; load it with PyTorch and save it again")
	}
	return nil, nil, prefix.Foreign{Err: fmt.Errorf("not made by torch.save: %s", kindOf(r, size, head))}
}

// kindOf describes a file that torch.save has not made. For a file without a header of safetensors,
// package safetensors recognizes pages of HTML, pointers of Git LFS and files of other programs.
func kindOf(r io.ReaderAt, size int64, head []byte) string {
	const length, longest = 8, 100_000_000 // bytes of the header length of safetensors, and its limit
	if len(head) > length {
		if binary.LittleEndian.Uint64(head) > longest {
			var other *safetensors.FormatError
			if _, err := safetensors.NewFile(r, size); errors.As(err, &other) && strings.HasPrefix(other.Reason, "this is ") {
				return strings.TrimSuffix(other.Reason, ", not a safetensors file")
			}
		} else if bytes.HasPrefix(bytes.TrimLeft(head[length:], " \t\r\n"), []byte("{")) {
			return "this is a safetensors file, " + variant.PackageOpens
		}
	}
	return fmt.Sprintf("it starts with %q", head[:min(8, len(head))])
}

// storages are the storages of one file.
type storages interface {
	// find locates the data of these storages, whose keys differ. It must be called before
	// openStorage.
	find(used []*storage) error

	// openStorage returns the data of a storage.
	openStorage(s *storage) (source, error)
}

// A views makes tensors from the storages of a file.
type views struct {
	file   storages
	name   string // name of the file, for errors; "" if it is unknown
	left   int64  // number of bytes that further tensors may have
	wholes map[whole]safetensors.Tensor
}

// A whole identifies all elements of a storage, read as one dtype.
type whole struct{ key, dtype string }

// newViews returns the views of the storages in r, which has size bytes.
func newViews(r io.ReaderAt, file storages, size int64) *views {
	return &views{file, osfile.NameOf(r), rankfile.Most(size), make(map[whole]safetensors.Tensor)}
}

// find locates the storages of those tensors that can be read.
func (v *views) find(tensors map[string]*tensor) error {
	known := make(map[string]bool)
	var used []*storage
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		if s := tensors[name].storage; tensors[name].check() == nil && !known[s.key] {
			known[s.key] = true
			used = append(used, s)
		}
	}
	return v.file.find(used)
}

// check returns the reason why a tensor cannot be read, as far as that is known without its data.
func (t *tensor) check() error {
	switch {
	case t.dtype == 0:
		return prefix.Unsupported{Err: fmt.Errorf("safetensors has no dtype for torch.%s", t.Name)}
	case t.storage.device == "meta":
		return prefix.Unsupported{Err: errors.New("it is on the meta device and has no data")}
	}
	return nil
}

// tensor returns a tensor of safetensors with the elements of t.
func (v *views) tensor(t *tensor) (made safetensors.Tensor, err error) {
	if err := t.check(); err != nil {
		return made, err
	}
	src, err := v.file.openStorage(t.storage)
	if err != nil {
		return made, err
	}
	l := layout{t.storage.offset + t.offset, t.shape, t.strides}
	if err := l.check(src.size/int64(t.Width), t.Width); err != nil {
		return made, err
	}
	id := whole{t.storage.key, t.Name}
	all, known := v.wholes[id]
	if !known {
		if all, err = src.tensor(t.element, v.name); err != nil {
			return made, err
		}
		v.wholes[id] = all
	}
	if made, err = l.view(all); err == nil && t.dtype == safetensors.F4 {
		made, err = l.pairs(made, all)
	}
	if err != nil {
		return made, err
	}
	bytes := made.Size()
	if src.compressed && bytes > 0 {
		bytes = max(bytes, src.size) // each read may unpack the whole storage
	}
	if bytes > v.left {
		return made, fmt.Errorf("%v is too large for this file: its tensors repeat the same data too often", made)
	}
	v.left -= bytes
	return made, nil
}
