package torchfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors"
)

// The start of a legacy file: two pickles of these values.
const (
	legacyMagic   = long("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") // 0x1950a86a20f9469cfc6c
	legacyVersion = int64(1001)
)

// A legacyFile is the stream that torch.save wrote before PyTorch 1.6: pickles of
// the magic number, the version, what the machine was, the object, and the keys of
// the storages; then each storage, its number of elements before it. Numbers are
// little-endian, whatever the machine was.
type legacyFile struct {
	r    io.ReaderAt
	data map[string]legacyStorage
}

// A legacyStorage is where the data of a storage is.
type legacyStorage struct {
	start, size int64
}

// openLegacy returns the content of the object.
func openLegacy(r io.ReaderAt, size int64) (top any, file storages, err error) {
	u := newUnpickler(io.NewSectionReader(r, 0, size), size)
	u.class, u.reduce = allow, reduce
	u.persistent = func(any) (any, error) { return nil, errors.New("a storage before the object") }
	magic, err := u.load()
	if err != nil || magic != legacyMagic {
		return nil, nil, cmpErr(err, "a Python pickle that torch.save did not make; its first object is %s", describe(magic))
	}
	version, err := u.load()
	if err != nil || version != legacyVersion {
		return nil, nil, cmpErr(err, "the version of the legacy format is not %d", legacyVersion)
	}
	if _, err := u.load(); err != nil {
		return nil, nil, err
	}
	first := make(map[string]*storage)
	u.persistent = func(id any) (any, error) {
		v, err := persistent(id)
		if s, ok := v.(*storage); ok && first[s.key] == nil {
			first[s.key] = s
		}
		return v, err
	}
	if top, err = u.load(); err != nil {
		return nil, nil, err
	}
	keys, err := u.load()
	if err != nil {
		return nil, nil, err
	}
	l := &legacyFile{r, make(map[string]legacyStorage)}
	return top, l, l.find(keys, first, u.pos, size)
}

// find finds the storages from byte pos on. The element size of each is that of the
// first storage of its key in the pickle.
func (l *legacyFile) find(keys any, first map[string]*storage, pos, size int64) error {
	named, ok := keys.(*list)
	if !ok {
		return fmt.Errorf("the keys of the storages are %s, not a list", describe(keys))
	}
	for _, k := range named.items {
		key, ok := k.(string)
		s := first[key]
		if _, dup := l.data[key]; !ok || s == nil || dup {
			return fmt.Errorf("the key of a storage is unknown or a duplicate: %.200q", key)
		}
		var count [8]byte
		if pos > size-int64(len(count)) {
			return fmt.Errorf("storage %.200q starts at the end of the file: %w", key, io.ErrUnexpectedEOF)
		}
		if n, err := l.r.ReadAt(count[:], pos); n < len(count) {
			return fmt.Errorf("reading the size of storage %.200q: %w", key, err)
		}
		pos += int64(len(count))
		n := int64(binary.LittleEndian.Uint64(count[:]))
		if width := int64(s.element.width); n < 0 || n > (size-pos)/width {
			return fmt.Errorf("storage %.200q claims %d elements of %d bytes, the file has %d bytes left: %w", key, n, width, size-pos, io.ErrUnexpectedEOF)
		}
		l.data[key] = legacyStorage{pos, n * int64(s.element.width)}
		pos += l.data[key].size
	}
	if pos < size {
		return fmt.Errorf("%d bytes after the last storage", size-pos)
	}
	return nil
}

func (l *legacyFile) tensor(s *storage, layOut layOut) (safetensors.Tensor, error) {
	d, ok := l.data[s.key]
	if !ok {
		return safetensors.Tensor{}, fmt.Errorf("the file has no storage %.200q", s.key)
	}
	if err := s.check(d.size); err != nil {
		return safetensors.Tensor{}, err
	}
	return layOut(io.NewSectionReader(l.r, d.start, d.size), d.size, false)
}
