package torch

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors/internal/pickle"
)

// The start of a legacy file: two pickles of these values.
const (
	legacyMagic   = pickle.Long("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") // 0x1950a86a20f9469cfc6c
	legacyVersion = int64(1001)
)

// A legacyFile is the data of each storage in the stream that torch.save wrote before PyTorch
// 1.6: pickles of the magic number, the version, what the machine was, the object, and the keys
// of the storages; then each storage, its number of elements before it. Numbers are
// little-endian, whatever the machine was.
type legacyFile map[string]*io.SectionReader

// openLegacy returns the content of the object.
func openLegacy(r io.ReaderAt, size int64) (top any, file storages, err error) {
	u := newUnpickler(io.NewSectionReader(r, 0, size), size)
	u.Persistent = func(any) (any, error) { return nil, errors.New("a storage before the object") }
	magic, err := u.Load()
	if err != nil || magic != legacyMagic {
		return nil, nil, cmp.Or(err, fmt.Errorf("a Python pickle that torch.save did not make; its first object is %s", pickle.Describe(magic)))
	}
	version, err := u.Load()
	if err != nil || version != legacyVersion {
		return nil, nil, cmp.Or(err, fmt.Errorf("the version of the legacy format is not %d", legacyVersion))
	}
	if _, err := u.Load(); err != nil {
		return nil, nil, err
	}
	first := make(map[string]*storage)
	u.Persistent = func(id any) (any, error) {
		if class, ok := moduleClass(id); ok {
			return class, nil
		}
		v, err := persistent(id)
		if s, ok := v.(*storage); ok && first[s.key] == nil {
			first[s.key] = s
		}
		return v, err
	}
	if top, err = u.Load(); err != nil {
		return nil, nil, err
	}
	keys, err := u.Load()
	if err != nil {
		return nil, nil, err
	}
	l := make(legacyFile)
	return top, l.data, l.find(r, keys, first, u.Pos(), size)
}

// moduleClass returns the class of ("module", class, file, source), which stands for a class
// of modules whose source was saved along.
func moduleClass(id any) (class pickle.Global, ok bool) {
	if t, isTuple := id.(pickle.Tuple); isTuple && len(t) == 4 && t[0] == "module" {
		class, ok = t[1].(pickle.Global)
	}
	return class, ok
}

// find finds the storages from byte pos of r on. The element size of each is that of the
// first storage of its key in the pickle.
func (l legacyFile) find(r io.ReaderAt, keys any, first map[string]*storage, pos, size int64) error {
	named, ok := keys.(*pickle.List)
	if !ok {
		return fmt.Errorf("the keys of the storages are %s, not a list", pickle.Describe(keys))
	}
	for _, k := range named.Items {
		key, ok := k.(string)
		s := first[key]
		if !ok || s == nil || l[key] != nil {
			return fmt.Errorf("the key of a storage is unknown or a duplicate: %.200q", key)
		}
		var count [8]byte
		if pos > size-int64(len(count)) {
			return fmt.Errorf("storage %.200q starts at the end of the file: %w", key, io.ErrUnexpectedEOF)
		}
		if n, err := r.ReadAt(count[:], pos); n < len(count) {
			return fmt.Errorf("reading the size of storage %.200q: %w", key, err)
		}
		pos += int64(len(count))
		n := int64(binary.LittleEndian.Uint64(count[:]))
		if width := int64(s.element.Width); n < 0 || n > (size-pos)/width {
			return fmt.Errorf("storage %.200q claims %d elements of %d bytes, the file has %d bytes left: %w", key, n, width, size-pos, io.ErrUnexpectedEOF)
		}
		l[key] = io.NewSectionReader(r, pos, n*int64(s.element.Width))
		pos += l[key].Size()
	}
	if pos < size {
		return fmt.Errorf("%d bytes after the last storage", size-pos)
	}
	return nil
}

func (l legacyFile) data(s *storage) (source, error) {
	r := l[s.key]
	if r == nil {
		return source{}, fmt.Errorf("the file has no storage %.200q", s.key)
	}
	return source{r: r, size: r.Size()}, s.check(r.Size())
}
