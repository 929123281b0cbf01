package safetensors

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"sort"
	"sync"
)

// A File gives access to the tensors of a safetensors file, or of several opened as
// one. All methods may be called concurrently.
type File struct {
	parts    []part    // one, or a shard each
	names    nameIndex // numbers the entries of all parts, one after another
	metadata func() map[string]string
}

// A part is one file of a File.
type part struct {
	*table
	file  string // its name without the folder, or of the shard in the index; "" if unknown
	src   *source
	first int // number of its first entry

	tensors []Tensor // of FileOf: one for each entry, in place of the data of src
}

// Join returns the tensors of several files as one File, with the metadata of the
// first. Close closes the files. A name in two is an error that names both, and closes
// nothing.
func Join(files ...*File) (*File, error) {
	f, err := join(files)
	if broken := (*FormatError)(nil); errors.As(err, &broken) {
		err = errors.New(broken.Error()) // the caller chose the files
	}
	return f, prefixed(err)
}

// join is Join where files belong together: a duplicate name is their fault.
func join(files []*File) (*File, error) {
	f := &File{metadata: func() map[string]string { return nil }}
	size := int64(0) // Header lays the data of all out one after another
	for i, file := range files {
		if file == nil {
			return nil, fmt.Errorf("files[%d] to join is nil", i)
		}
		for _, p := range file.parts {
			if size += p.dataSize(); size < 0 {
				return nil, &FormatError{Offset: -1, Reason: "the sizes of the files together overflow 63 bits"}
			}
			p.first = f.Len()
			f.parts = append(f.parts, p)
		}
	}
	if len(files) > 0 {
		f.metadata = files[0].metadata
	}
	var duplicate int
	if f.names, duplicate = newNameIndex(f.Len(), f.name); duplicate >= 0 {
		name := f.name(duplicate)
		reason := fmt.Sprintf("duplicate tensor name, in %s and %s", fileWith(files, f.names.lookup(name, f.name)), fileWith(files, duplicate))
		return nil, &FormatError{Offset: -1, Tensor: name, Reason: reason}
	}
	return f, nil
}

// fileWith says which of several files has an entry of all.
func fileWith(files []*File, entry int) string {
	i := 0
	for ; entry >= files[i].Len(); i++ {
		entry -= files[i].Len()
	}
	if name := files[i].partOf(entry).src.fileName(); name != "" {
		return quote(name)
	}
	return fmt.Sprintf("files[%d]", i)
}

// newFile returns a File of one part.
func newFile(t *table, src *source) *File {
	src.table = t
	return &File{
		parts:    []part{{table: t, src: src}},
		names:    t.names,
		metadata: sync.OnceValue(t.metadataMap),
	}
}

// Close waits for the copies in progress (Append, WriteTo, Write), those to slow clients
// too: in a server, go old.Close(). Then it releases the file: later ones return an error
// wrapping [fs.ErrClosed], and reading a view of a mapping crashes the program. Closing
// twice is no error. Operations on computed tensors are not waited for; their next read of
// the file fails. Close deadlocks in a Write method or a func of Watch that a copy calls.
//
// A file never closed stays mapped: it costs address space.
func (f *File) Close() error {
	var errs []error
	for i := range f.parts {
		errs = append(errs, f.parts[i].src.close())
	}
	return prefixed(errors.Join(errs...))
}

// Metadata returns a copy of the strings of the header; of several shards, those of the
// first, then of the index. It is nil if there are none: make a map before you add to it.
func (f *File) Metadata() map[string]string { return maps.Clone(f.metadata()) }

// Tensor returns a tensor by name and reads no data. For an unknown name, the error
// wraps [fs.ErrNotExist]. Open's error for a missing file does, too; check the two
// calls separately.
func (f *File) Tensor(name string) (Tensor, error) {
	i := f.names.lookup(name, f.name)
	if i < 0 {
		return Tensor{}, prefixed(noTensorError(name))
	}
	p := f.partOf(i)
	return p.tensor(i - p.first), nil
}

// Tensors yields all tensors by name, in the order of their data, shard by shard.
func (f *File) Tensors() iter.Seq2[string, Tensor] {
	return func(yield func(string, Tensor) bool) {
		for i := range f.parts {
			p := &f.parts[i]
			for k := range p.entries {
				if !yield(p.name(k), p.tensor(k)) {
					return
				}
			}
		}
	}
}

// Len returns the number of tensors.
func (f *File) Len() int {
	if len(f.parts) == 0 {
		return 0
	}
	last := &f.parts[len(f.parts)-1]
	return last.first + len(last.entries)
}

// String returns a summary such as "22 tensors, 44160 bytes".
func (f *File) String() string {
	size := int64(0)
	for _, t := range f.Tensors() {
		size += t.Size()
	}
	plural := "s"
	if f.Len() == 1 {
		plural = ""
	}
	return fmt.Sprintf("%d tensor%s, %d bytes", f.Len(), plural, size)
}

// Header returns a copy of the header. Of several files it is that of a file with their
// data one after another; DataStart is 0.
func (f *File) Header() *Header {
	if len(f.parts) == 1 {
		return f.parts[0].header()
	}
	all := &Header{Metadata: maps.Clone(f.metadata()), Tensors: make([]TensorInfo, 0, f.Len())}
	begin := int64(0)
	for _, p := range f.parts {
		for _, t := range p.header().Tensors {
			end := begin + t.DataOffsets[1] - t.DataOffsets[0]
			t.DataOffsets = [2]int64{begin, end}
			all.Tensors = append(all.Tensors, t)
			begin = end
		}
	}
	return all
}

// Headers yields the name of each file and a copy of its header. The name is that in the
// index, or that of the file without its directory, or "". Data of a tensor starts at
// DataStart + TensorInfo.DataOffsets[0]. A shard has the tensors that the index places
// in it.
func (f *File) Headers() iter.Seq2[string, *Header] {
	return func(yield func(string, *Header) bool) {
		for i := range f.parts {
			if !yield(f.parts[i].file, f.parts[i].header()) {
				return
			}
		}
	}
}

// ParameterCount returns the number of elements of each dtype, at most math.MaxInt64.
func (f *File) ParameterCount() map[DType]int64 {
	count := make(map[DType]int64)
	for _, t := range f.Tensors() {
		n, _ := countElements(t.shape)
		count[t.dtype] = int64(min(uint64(count[t.dtype])+n, math.MaxInt64)) // F4 has two a byte
	}
	return count
}

// name returns the name of an entry by its number in f.names.
func (f *File) name(i int) string {
	p := f.partOf(i)
	return p.name(i - p.first)
}

// partOf returns the part that has the entry of a number in f.names.
func (f *File) partOf(i int) *part {
	if len(f.parts) == 1 {
		return &f.parts[0]
	}
	return &f.parts[sort.Search(len(f.parts), func(k int) bool { return f.parts[k].first > i })-1]
}

// tensor returns the tensor of an entry.
func (p *part) tensor(i int) Tensor {
	if p.tensors != nil {
		return p.tensors[i]
	}
	e := &p.entries[i]
	return Tensor{dtype: e.shape.dtype(), shape: p.shape(e), src: p.src, off: e.begin, size: e.end - e.begin}
}
