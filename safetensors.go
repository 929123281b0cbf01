package safetensors

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"sort"

	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A File gives access to the tensors of a safetensors file, or of several opened as
// one. All methods may be called concurrently.
type File struct {
	opened   string                   // the path under which a checkpoint was opened, for errors; "" if unknown
	parts    []part                   // the file, or each shard
	names    nameIndex                // finds entries by name; their indices count the entries of all parts
	metadata func() map[string]string // returns a new map, which the caller may change
}

// A part is one file of a File.
type part struct {
	*table
	file  string // name without its directory, or as in the index; "" if unknown
	src   *source
	first int // index of its first entry in File.names

	tensors []Tensor // a tensor for each entry if the File comes from FileOf, otherwise nil
}

// Join returns the tensors of several files as one File, with the metadata of the first one.
// Close closes the files. If two files have a tensor with the same name, the error names both
// files, and none is closed.
func Join(files ...*File) (*File, error) {
	f, err := join(files)
	if broken := (*FormatError)(nil); errors.As(err, &broken) {
		err = errors.New(broken.Error()) // not a FormatError: each file is sound, and the caller chose them
	}
	return f, prefixed(err)
}

// join is Join for the files of one checkpoint, where a duplicate name is a FormatError.
func join(files []*File) (*File, error) {
	f := &File{metadata: func() map[string]string { return nil }}
	size := int64(0) // size in bytes of all data, to which File.Header gives consecutive offsets
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

// fileWith returns a name for the file that holds an entry. The index of the entry counts the
// entries of all files.
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

// newFile returns a File with one part.
func newFile(t *table, src *source) *File {
	src.table = t
	return &File{
		parts:    []part{{table: t, src: src}},
		names:    t.names,
		metadata: t.metadataMap,
	}
}

// Close waits for copies in progress (Append, WriteTo, Write). A copy to a slow client may take
// long, so a server should call Close on another goroutine. Then Close releases the file: later
// copies return an error wrapping [fs.ErrClosed], and reading a view of a mapping crashes the
// program. Closing twice is not an error. Close does not wait for operations on computed tensors;
// their next read of the file fails. Calling Close from a Write method or a Watch func during a
// copy deadlocks.
//
// A file that is never closed stays mapped, which costs address space.
func (f *File) Close() error {
	var errs []error
	for i := range f.parts {
		errs = append(errs, f.parts[i].src.close())
	}
	return prefixed(errors.Join(errs...))
}

// Metadata returns a copy of the metadata in the header; for several shards, of the metadata of
// the first one, and of strings that only the index has. It is nil if there is none: make a map
// before you add to it.
func (f *File) Metadata() map[string]string { return f.metadata() }

// Tensor returns a tensor by name and reads no data. For an unknown name, the error wraps
// [fs.ErrNotExist]. So does Open's error for a missing file; check the two calls separately.
func (f *File) Tensor(name string) (Tensor, error) {
	i := f.names.lookup(name, f.name)
	if i < 0 {
		return Tensor{}, prefixed(&noTensorError{name, f.opened})
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
	return fmt.Sprintf("%s, %s", shapetext.Count(f.Len(), "tensor"), shapetext.Count(size, "byte"))
}

// Header returns a copy of the header. For several files, it is the header of one file that holds
// their data one after another; DataStart is 0.
func (f *File) Header() *Header {
	if len(f.parts) == 1 {
		return f.parts[0].header()
	}
	all := &Header{Metadata: f.metadata(), Tensors: make([]TensorInfo, 0, f.Len())}
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

// Headers yields the name of each file and a copy of its header. The name is the one in the
// index, or the name of the file without its directory, or "". The data of a tensor starts at
// DataStart + TensorInfo.DataOffsets[0]. The header of a shard has only the tensors that the
// index places in it.
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
		count[t.dtype] = int64(min(uint64(count[t.dtype])+n, math.MaxInt64)) // the sum may overflow an int64, because F4 has two elements per byte
	}
	return count
}

// name returns the name of the entry with index i in f.names.
func (f *File) name(i int) string {
	p := f.partOf(i)
	return p.name(i - p.first)
}

// partOf returns the part that holds an entry, by its index in f.names.
func (f *File) partOf(i int) *part {
	if len(f.parts) == 1 {
		return &f.parts[0]
	}
	return &f.parts[sort.Search(len(f.parts), func(k int) bool { return f.parts[k].first > i })-1]
}

// tensor returns the tensor of an entry, by its index in p.
func (p *part) tensor(i int) Tensor {
	if p.tensors != nil {
		return p.tensors[i]
	}
	e := &p.entries[i]
	return Tensor{dtype: e.shape.dtype(), shape: p.shape(e), origin: p.src, off: e.begin, size: e.end - e.begin}
}

// Elements returns the elements of a tensor by name, as Append(nil, t) does. If shape is given,
// any other shape is an error; -1 stands for any size of a dimension. To require a scalar, check
// Tensor.Shape. For the numbers of a quantised model, use package quant.
func Elements[T Element](f *File, name string, shape ...int) ([]T, error) {
	t, err := f.Tensor(name)
	if err != nil {
		return nil, err
	}
	if len(shape) > 0 && !slices.EqualFunc(t.shape, shape, func(n, want int) bool { return n == want || want == -1 }) {
		return nil, prefixed(tensorError(name, fmt.Errorf("its shape is %s, not %s", shapetext.Of(t.shape), shapetext.Of(shape))))
	}
	data, err := appendTo[T](nil, t)
	return data, prefixed(tensorError(name, err))
}
