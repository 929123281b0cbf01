package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"sort"
	"sync"

	xmmap "golang.org/x/exp/mmap"
)

// A File gives access to the tensors of a safetensors file, or to those of
// several shards opened as one. All methods may be called concurrently.
type File struct {
	parts    []part // one, or a shard each
	index    index  // numbers the entries of all parts, one after another
	metadata func() map[string]string
}

// A part is one file of a File.
type part struct {
	*table
	src   *source
	first int // number of its first entry
}

// Open opens a checkpoint for lazy reading: a .safetensors file, several shards by
// their index, a *.index.json, or what a folder holds of these, by preference
// model.safetensors, then model.safetensors.index.json, then the only other one.
//
// It maps the file, so that tensors can be viewed without a copy, and reads only
// the header; where files cannot be mapped, tensors are read when asked for.
//
// The file must not be written to or truncated while it is open; replacing it,
// as WriteFile does, is fine except on Windows. Close the File when no view of
// it is used any more.
//
// Errors of the operating system are wrapped, with the name; a file that breaks
// a rule of the format is a *FormatError.
func Open(name string) (*File, error) { return openCheckpoint(name, openFile, shardsAtOnce) }

func openFile(name string) (*File, error) {
	f, size, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	t, err := readTable(f, size)
	if err != nil {
		f.Close()
		return nil, nameError(name, err)
	}
	mem, err := mmap(f, size)
	switch {
	case err == nil:
		f.Close()
		return newFile(t, &source{mem: mem[t.size():], mapped: true, release: func() error { return munmap(mem) }}), nil
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
		return nil, nameError(name, err)
	}
	f, err := NewFile(r, int64(r.Len()))
	if err != nil {
		r.Close()
		return nil, nameError(name, err)
	}
	f.parts[0].src.release = r.Close
	return f, nil
}

// Load reads a checkpoint, named as for Open, into memory, with several readers
// at a time. Nothing stays open: Close only makes later operations on the File
// fail, views stay valid for as long as they are used. Errors are those of Open.
func Load(name string) (*File, error) { return openCheckpoint(name, loadFile, 1) }

func loadFile(name string) (*File, error) {
	f, size, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := readTable(f, size)
	if err != nil {
		return nil, nameError(name, err)
	}
	if t.dataSize() > math.MaxInt-7 {
		return nil, nameError(name, fmt.Errorf("%d bytes do not fit the memory", t.dataSize()))
	}
	mem := extend([]uint64(nil), int((t.dataSize()+7)/8)) // aligned for all dtypes
	src := &source{mem: bytesOf(mem)[:t.dataSize():t.dataSize()]}
	disk := &source{r: f, base: t.size()}
	err = parallelBlocks(readers, t.dataSize(), func(pos, n int64) error {
		return disk.readAt(src.mem[pos:][:n], pos)
	})
	if err != nil {
		return nil, nameError(name, err)
	}
	return newFile(t, src), nil
}

// Parse returns the tensors of a whole file in memory. It keeps data, which must
// not be written to while the File or a view of it is used; the header is copied.
func Parse(data []byte) (*File, error) {
	if err := checkFileSize(int64(len(data))); err != nil {
		return nil, err
	}
	length, err := checkHeaderLength(data, int64(len(data)))
	if err != nil {
		return nil, err
	}
	text, mem := allocate[byte](int(length)), data[prefixSize+length:]
	copy(text, data[prefixSize:])
	t, err := parseHeader(text, int64(len(mem)))
	if err != nil {
		return nil, err
	}
	return newFile(t, &source{mem: mem[:len(mem):len(mem)]}), nil
}

// NewFile returns the tensors of the file of that size in bytes that r reads. It
// reads the header, in one read of 64 KiB if it is not longer, and the data of a
// tensor when that is asked for, with several ReadAt calls at a time. It suits
// files on network disks, and all that a ReaderAt can be made of.
//
// If r is a RangeReader, slices are read through that. Close does not close r.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	t, err := readTable(r, size)
	if err != nil {
		return nil, err
	}
	src := &source{r: r, base: t.size()}
	src.ranges, _ = r.(RangeReader)
	return newFile(t, src), nil
}

// A RangeReader is an io.ReaderAt to which it matters to know all that is wanted
// at once, because each read costs a round trip, as of package remote.
type RangeReader interface {
	io.ReaderAt

	// ReadRanges fills each slice with the bytes at its offset. The offsets rise,
	// and the ranges do not overlap. It may be called concurrently.
	ReadRanges(ranges iter.Seq2[int64, []byte]) error
}

// newFile returns a File of one part.
func newFile(t *table, src *source) *File {
	return &File{
		parts:    []part{{table: t, src: src}},
		index:    t.index,
		metadata: sync.OnceValue(t.metadataMap),
	}
}

// openRegular opens a regular file and returns its size. It looks before it
// opens, since opening a named pipe would wait for a writer.
func openRegular(name string) (*os.File, int64, error) {
	info, err := os.Stat(name)
	if err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, 0, nameError(name, err)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, nameError(name, err)
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, 0, nameError(name, err)
	}
	return f, info.Size(), nil
}

// checkRegular says what a file is that is not a regular one.
func checkRegular(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return errors.New("it is a directory")
	case mode&fs.ModeDevice != 0:
		return errors.New("it is a device")
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("it is a named pipe")
	default:
		return errors.New("it is not a regular file")
	}
}

// Close waits for copying operations that are under way (Append, WriteTo, Write
// and so on; so it must not be called from within a Writer that one of them
// writes to), then releases the file. Later ones fail with an error that is
// fs.ErrClosed. Views into a file from Open must not be used any more: reading
// them ends the program. Close can be called again, and then does nothing.
//
// Nothing else releases the file, as a view does not keep a File alive: a
// forgotten Close costs address space.
func (f *File) Close() error {
	var errs []error
	for i := range f.parts {
		errs = append(errs, f.parts[i].src.close())
	}
	return errors.Join(errs...)
}

// Metadata returns the free-form strings of the header, nil if it has none. Of
// several shards it is that of the first. The map is shared and must not be
// modified.
func (f *File) Metadata() map[string]string { return f.metadata() }

// Tensor returns a tensor by name. It reads no data. An unknown name is an error
// that is fs.ErrNotExist.
func (f *File) Tensor(name string) (Tensor, error) {
	i := f.index.lookup(name, f.name)
	if i < 0 {
		return Tensor{}, noTensorError(name)
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
		n, _ := countElements(t.Shape)
		count[t.DType] += n
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

// name returns the name of an entry by its number in the index.
func (f *File) name(i int) string {
	p := f.partOf(i)
	return p.name(i - p.first)
}

// partOf returns the part that has the entry of a number in the index.
func (f *File) partOf(i int) *part {
	if len(f.parts) == 1 {
		return &f.parts[0]
	}
	return &f.parts[sort.Search(len(f.parts), func(k int) bool { return f.parts[k].first > i })-1]
}

// tensor returns the tensor of an entry.
func (p *part) tensor(i int) Tensor {
	e := &p.entries[i]
	return Tensor{DType: e.dtype(), Shape: p.shape(e), src: p.src, off: e.begin, size: e.end - e.begin}
}
