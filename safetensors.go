package safetensors

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"sort"
	"sync"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	xmmap "golang.org/x/exp/mmap"
)

// A File gives access to the tensors of a safetensors file, or to those of
// several shards opened as one. All methods may be called concurrently.
type File struct {
	parts    []part    // one, or a shard each
	names    nameIndex // numbers the entries of all parts, one after another
	metadata func() map[string]string
}

// A part is one file of a File.
type part struct {
	*table
	src   *source
	first int // number of its first entry
}

// Open opens a checkpoint for lazy reading: a .safetensors file, several shards by
// their index, a *.index.json, or the one of these that a folder holds:
// model.safetensors, else model.safetensors.index.json, else the only other one.
//
// It maps the file, so that tensors can be viewed without a copy, and reads only
// the header. Where files cannot be mapped, it reads tensors when asked for them.
//
// The file must not be written to or truncated while it is open. Replacing it, as
// WriteFile does, is safe except on Windows. Close the File when no view of it is
// in use any more.
//
// Errors of the operating system are wrapped, with the name; a file that breaks
// a rule of the format is a *FormatError.
func Open(name string) (*File, error) {
	f, err := openCheckpoint(name, openFile, shardsAtOnce)
	return f, prefixed(err)
}

func openFile(name string) (*File, error) {
	f, size, err := osfile.OpenRegular(name)
	if err != nil {
		return nil, openError(name, err)
	}
	t, err := readTable(f, size)
	if err != nil {
		f.Close()
		return nil, openError(name, err)
	}
	mapping, err := mmap(f, size)
	switch {
	case err == nil:
		f.Close()
		return newFile(t, &source{mem: mapping[t.size():], mapped: true, release: func() error { return munmap(mapping) }}), nil
	case errors.Is(err, errors.ErrUnsupported):
		f.Close()
		return openUnmapped(name)
	}
	return newFile(t, &source{r: f, base: t.size(), release: f.Close}), nil
}

// openUnmapped opens a file on systems that cannot map files.
func openUnmapped(name string) (*File, error) {
	r, err := xmmap.Open(name)
	if err != nil {
		return nil, openError(name, err)
	}
	f, err := openReader(r, int64(r.Len()))
	if err != nil {
		r.Close()
		return nil, openError(name, err)
	}
	f.parts[0].src.release = r.Close
	return f, nil
}

// Load reads a checkpoint, named as for Open, into memory, reading in parallel.
// Nothing stays open: Close only makes later operations on the File fail, and
// views stay valid. Errors are those of Open.
func Load(name string) (*File, error) {
	f, err := openCheckpoint(name, loadFile, 1)
	return f, prefixed(err)
}

func loadFile(name string) (*File, error) {
	f, size, err := osfile.OpenRegular(name)
	if err != nil {
		return nil, openError(name, err)
	}
	defer f.Close()
	t, err := readTable(f, size)
	if err != nil {
		return nil, openError(name, err)
	}
	if t.dataSize() > math.MaxInt-7 {
		return nil, openError(name, fmt.Errorf("%d bytes exceed the address space", t.dataSize()))
	}
	words := mem.Extend([]uint64(nil), int((t.dataSize()+7)/8)) // aligned for all dtypes
	src := &source{mem: mem.BytesOf(words)[:t.dataSize():t.dataSize()]}
	disk := &source{r: f, base: t.size()}
	err = parallel.Blocks(readers, t.dataSize(), mem.BlockSize, func(pos, n int64) error {
		return disk.readAt(src.mem[pos:][:n], pos)
	})
	if err != nil {
		return nil, openError(name, err)
	}
	return newFile(t, src), nil
}

// Parse opens a whole file in memory. It keeps data, which must not be written to
// while the File or a view of it is in use; the header is copied.
func Parse(data []byte) (*File, error) {
	f, err := parseFile(data)
	return f, prefixed(err)
}

func parseFile(data []byte) (*File, error) {
	if err := checkFileSize(int64(len(data))); err != nil {
		return nil, err
	}
	length, err := checkHeaderLength(data, int64(len(data)))
	if err != nil {
		return nil, err
	}
	text, buffer := mem.Allocate[byte](int(length)), data[prefixSize+length:]
	copy(text, data[prefixSize:])
	t, err := parseHeader(text, int64(len(buffer)))
	if err != nil {
		return nil, err
	}
	return newFile(t, &source{mem: buffer[:len(buffer):len(buffer)]}), nil
}

// NewFile opens the safetensors file of size bytes read through r. It reads the
// header at once, in one read of 64 KiB unless it is longer, and the data of a
// tensor when asked for it, with up to 16 concurrent ReadAt calls. Use it for
// network file systems, or anything else that implements io.ReaderAt.
//
// If r is a RangeReader, slices are read through that. Close does not close r.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	f, err := openReader(r, size)
	return f, prefixed(err)
}

func openReader(r io.ReaderAt, size int64) (*File, error) {
	t, err := readTable(r, size)
	if err != nil {
		return nil, err
	}
	return newFile(t, newReaderSource(r, t.size())), nil
}

// newFile returns a File of one part.
func newFile(t *table, src *source) *File {
	return &File{
		parts:    []part{{table: t, src: src}},
		names:    t.names,
		metadata: sync.OnceValue(t.metadataMap),
	}
}

// Close waits for copying operations in progress (Append, WriteTo, Write and so
// on), then releases the file. Later ones return an error wrapping fs.ErrClosed.
// Views into a file from Open must not be used any more: reading them crashes the
// program. Calling Close again does nothing.
//
// Do not call Close from the Write method of a writer that such an operation is
// writing to: it would deadlock.
//
// Nothing else releases the file, because a view does not keep a File alive: a
// forgotten Close costs address space.
func (f *File) Close() error {
	var errs []error
	for i := range f.parts {
		errs = append(errs, f.parts[i].src.close())
	}
	return prefixed(errors.Join(errs...))
}

// Metadata returns the free-form strings of the header, nil if it has none. Of
// several shards it is that of the first. The map is shared and must not be
// modified.
func (f *File) Metadata() map[string]string { return f.metadata() }

// Tensor returns a tensor by name. It reads no data. If there is no tensor of
// that name, the error wraps fs.ErrNotExist.
func (f *File) Tensor(name string) (Tensor, error) {
	i := f.names.lookup(name, f.name)
	if i < 0 {
		return Tensor{}, prefixed(noTensorError(name))
	}
	p := f.partOf(i)
	return p.tensor(i - p.first), nil
}

// Tensors yields all tensors with their names, in the order of their data in the
// file, shard by shard. It reads no data. maps.Collect makes a checkpoint of
// them, as WriteFile takes it.
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

// ParameterCount returns the number of elements of each dtype in the file.
func (f *File) ParameterCount() map[DType]int64 {
	count := make(map[DType]int64)
	for _, t := range f.Tensors() {
		n, _ := countElements(t.shape)
		count[t.dtype] += int64(n) // a tensor that exists has fewer than 2^63
	}
	return count
}

// count returns the number of entries of all parts.
func (f *File) count() int {
	if len(f.parts) == 0 {
		return 0
	}
	last := &f.parts[len(f.parts)-1]
	return last.first + len(last.entries)
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
	e := &p.entries[i]
	return Tensor{dtype: e.dtype(), shape: p.shape(e), src: p.src, off: e.begin, size: e.end - e.begin}
}
