package torch

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// A legacy file starts with two pickles, of these values.
const (
	legacyMagic   = pickle.Long("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19") // 0x1950a86a20f9469cfc6c
	legacyVersion = int64(1001)
)

// A legacyFile maps the key of each storage to its data in the stream that torch.save wrote before
// PyTorch 1.6. The stream has pickles of the magic number, the version, properties of the machine,
// the object, and the keys of the storages; then each storage, preceded by its number of elements.
// Numbers are little-endian on every machine.
type legacyFile map[string]*io.SectionReader

// openLegacy returns the object in a legacy file, and its storages.
func openLegacy(r io.ReaderAt, size int64) (top any, file storages, err error) {
	u := newUnpickler(io.NewSectionReader(r, 0, size), size)
	u.Persistent = func(any) (any, error) { return nil, errors.New("a storage before the object") }
	magic, err := u.Load()
	if err != nil || magic != legacyMagic {
		return nil, nil, cmp.Or(err, otherPickle(magic))
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
		if s, ok := v.(*storage); ok {
			if err := s.addTo(first); err != nil {
				return nil, err
			}
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
	return top, l, l.index(r, keys, first, u.Pos(), size)
}

// otherPickle returns the error for a pickle whose first object is not the magic number.
func otherPickle(first any) error {
	metadata := pickle.Global{Module: "torch.distributed.checkpoint.metadata", Name: "Metadata"}
	if o, ok := first.(*pickle.Object); ok && o.Class == metadata {
		return errors.New("the .metadata of a distributed checkpoint; " + variant.PackageJoins)
	}
	return fmt.Errorf("a Python pickle that torch.save did not make; its first object is %s", pickle.Describe(first))
}

// addTo records a storage, and its view if it is one, in the map first, by their keys. PyTorch uses
// the first storage with a key for all others with that key. So a storage that differs from the
// first one is an error: PyTorch would give it the elements of the first.
func (s *storage) addTo(first map[string]*storage) error {
	known := first[s.key]
	if known == nil {
		known = &storage{key: s.key, element: s.element, numel: s.numel}
		first[s.key] = known
	}
	if known.view != "" || known.element != s.element || known.numel != s.numel {
		return fmt.Errorf("two storages with the key %.200q", s.key)
	}
	if s.view == "" {
		return nil
	}
	if known = first[s.view]; known == nil {
		first[s.view] = s
		return nil
	}
	if known.view != s.view || known.key != s.key || known.element != s.element || known.offset != s.offset || known.viewed != s.viewed {
		return fmt.Errorf("two views of storages with the key %.200q", s.view)
	}
	return nil
}

// moduleClass returns the class in the persistent id ("module", class, file, source). torch.save
// writes such an id for a class of modules, together with the source of the class.
func moduleClass(id any) (class pickle.Global, ok bool) {
	if t, isTuple := id.(pickle.Tuple); isTuple && len(t) == 4 && t[0] == "module" {
		class, ok = t[1].(pickle.Global)
	}
	return class, ok
}

// index finds the storages in r, which start at byte pos. It takes the element size of a storage
// from the first storage with its key in the pickle.
func (l legacyFile) index(r io.ReaderAt, keys any, first map[string]*storage, pos, size int64) error {
	named, ok := keys.(*pickle.List)
	if !ok {
		return fmt.Errorf("the keys of the storages are %s, not a list", pickle.Describe(keys))
	}
	for _, k := range named.Items {
		key, ok := k.(string)
		s := first[key]
		if !ok || s == nil || s.view != "" || l[key] != nil {
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
		return fmt.Errorf("%s after the last storage", shapetext.Count(size-pos, "byte"))
	}
	return nil
}

// find does nothing, because index has found all storages.
func (legacyFile) find([]*storage) error { return nil }

// openStorage implements storages.
func (l legacyFile) openStorage(s *storage) (source, error) {
	r := l[s.key]
	if r == nil {
		return source{}, fmt.Errorf("the file has no storage %.200q", s.key)
	}
	return source{r: r, size: r.Size()}, s.check(r.Size())
}
