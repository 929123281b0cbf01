package safetensors

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	xmmap "golang.org/x/exp/mmap"
)

// Open opens a checkpoint for lazy reading: a .safetensors file, an index of shards, or
// a directory, searched in this order: model.safetensors; its index; the only other
// index or file; a complete set x-00001-of-0000N.safetensors.
//
// It maps the file, or reads tensors on demand where it cannot. Each file takes a
// descriptor until Close. Do not write to an open file or truncate it; replacing it, as
// WriteFile does, is safe except on Windows.
//
// Errors of the system are wrapped, with the name. A file that breaks a rule of the
// format is a *[FormatError].
func Open(name string) (*File, error) {
	f, err := openCheckpoint(mappedFolder{}, name)
	return f, prefixed(err)
}

// Load reads a checkpoint, named as for Open, into memory. Nothing stays open, and
// views stay valid after Close.
func Load(name string) (*File, error) {
	f, err := openCheckpoint(loadedFolder{}, name)
	return f, prefixed(err)
}

// OpenFS opens a checkpoint, named as for Open, in a file system; "." is its root. A
// file that is an [io.ReaderAt] is read on demand, any other, as in a zip archive, at
// once into memory. Errors are those of Open.
func OpenFS(fsys fs.FS, name string) (*File, error) {
	switch {
	case fsys == nil:
		return nil, prefixed(openError(name, errors.New("the fs.FS is nil")))
	case !fs.ValidPath(name):
		return nil, prefixed(openError(name, fs.ErrInvalid))
	}
	f, err := openCheckpoint(fsFolder{fsys}, name)
	return f, prefixed(err)
}

// A folder is where the files of a checkpoint are: in the operating system or in
// an fs.FS, mapped or in memory.
type folder interface {
	isDir(name string) bool
	list(name string) ([]fs.DirEntry, error)
	join(dir, file string) string // file is local and slash-separated
	dir(name string) string
	open(name string) (fs.File, int64, error) // a regular file and its size
	openFile(name string) (*File, error)
	atOnce() int // how many files to open concurrently
}

// openCheckpoint opens what Open takes: a file, an index or a folder.
//
// A save may replace a checkpoint while it is opened: then a file is gone, and what names
// the files is another than the one read. Saves that come faster than it opens are rare.
func openCheckpoint(in folder, name string) (*File, error) {
	const tries = 10
	c := choose(in, name)
	for range tries - 1 {
		f, err := c.open(in)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		now := choose(in, name)
		if c.equal(now) {
			return nil, err
		}
		c = now
	}
	return c.open(in)
}

// A choice is the checkpoint that a name stands for at some moment.
type choice struct {
	name  string   // of a file, of an index, or of the folder with a set
	set   []string // the files of a set of shards without an index
	index []byte   // the text, if it is an index
	err   error    // why there is none
}

func (c choice) equal(d choice) bool {
	return c.name == d.name && slices.Equal(c.set, d.set) && bytes.Equal(c.index, d.index)
}

// choose finds the checkpoint that a name stands for, and reads its index.
func choose(in folder, name string) choice {
	c := choice{name: name}
	if in.isDir(name) {
		found, err := findCheckpoint(in, name)
		if err != nil || len(found) > 1 {
			return choice{name: name, set: found, err: err}
		}
		c.name = in.join(name, found[0])
	}
	if strings.HasSuffix(c.name, indexSuffix) {
		c.index, c.err = readIndex(in, c.name)
	}
	return c
}

// open opens the files of a checkpoint.
func (c choice) open(in folder) (*File, error) {
	var f *File
	err := c.err
	switch {
	case err != nil:
	case c.set != nil:
		f, err = openSet(in, c.name, c.set)
	case strings.HasSuffix(c.name, indexSuffix):
		f, err = openShards(bytes.Clone(c.index), in.atOnce(), func(shard string) (*File, error) {
			return openIn(in, in.join(in.dir(c.name), shard))
		})
	default:
		return openIn(in, c.name)
	}
	if err != nil {
		return nil, openError(c.name, err)
	}
	return f, nil
}

func openIn(in folder, name string) (*File, error) {
	f, err := in.openFile(name)
	if err != nil {
		return nil, openError(name, err)
	}
	f.parts[0].file = path.Base(filepath.ToSlash(name))
	f.parts[0].src.setName(name)
	return f, nil
}

// An osFolder is the part of a folder of the operating system that mapping and
// loading share.
type osFolder struct{}

func (osFolder) isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

func (osFolder) list(name string) ([]fs.DirEntry, error)  { return os.ReadDir(name) }
func (osFolder) dir(name string) string                   { return filepath.Dir(name) }
func (osFolder) join(dir, file string) string             { return filepath.Join(dir, filepath.FromSlash(file)) }
func (osFolder) open(name string) (fs.File, int64, error) { return osfile.OpenRegular(name) }

// A mappedFolder maps its files.
type mappedFolder struct{ osFolder }

func (mappedFolder) atOnce() int { return shardsAtOnce }

func (mappedFolder) openFile(name string) (*File, error) {
	f, size, err := osfile.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	t, err := readTable(f, size)
	if err != nil {
		f.Close()
		return nil, err
	}
	data, err := mmap(f, size)
	switch {
	case err == nil:
		return newFile(t, newMappedSource(&mapping{file: f, bytes: data}, t.size())), nil
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
		return nil, err
	}
	f, err := openReader(r, int64(r.Len()))
	if err != nil {
		r.Close()
		return nil, err
	}
	f.parts[0].src.release = r.Close
	return f, nil
}

// A loadedFolder reads its files into memory.
type loadedFolder struct{ osFolder }

func (loadedFolder) atOnce() int { return 1 } // each is read in parallel

func (loadedFolder) openFile(name string) (*File, error) {
	f, size, err := osfile.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := readTable(f, size)
	if err != nil {
		return nil, err
	}
	if err := mem.CheckSize(t.dataSize()); err != nil {
		return nil, err
	}
	src := &source{mem: alignedBytes(t.dataSize())}
	disk := &source{r: f, base: t.size()}
	err = parallel.Blocks(readers, t.dataSize(), mem.BlockSize, func(pos, n int64) error {
		mem.Prepare(src.mem, pos, n)
		return disk.readAt(src.mem[pos:][:n], pos)
	})
	if err != nil {
		return nil, err
	}
	return newFile(t, src), nil
}

// An fsFolder is a folder of an fs.FS.
type fsFolder struct{ fs fs.FS }

func (f fsFolder) isDir(name string) bool {
	info, err := fs.Stat(f.fs, name)
	return err == nil && info.IsDir()
}

func (f fsFolder) list(name string) ([]fs.DirEntry, error) { return fs.ReadDir(f.fs, name) }
func (f fsFolder) dir(name string) string                  { return path.Dir(name) }
func (f fsFolder) join(dir, file string) string            { return path.Join(dir, file) }
func (f fsFolder) atOnce() int                             { return shardsAtOnce }

func (f fsFolder) open(name string) (fs.File, int64, error) {
	file, err := f.fs.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil {
		err = osfile.CheckRegular(info)
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

func (f fsFolder) openFile(name string) (*File, error) {
	file, size, err := f.open(name)
	if err != nil {
		return nil, err
	}
	if r, ok := file.(io.ReaderAt); ok {
		opened, err := openReader(r, size)
		if err != nil {
			file.Close()
			return nil, err
		}
		opened.parts[0].src.release = file.Close
		return opened, nil
	}
	defer file.Close()
	if err := mem.CheckSize(size); err != nil {
		return nil, err
	}
	data, err := readWhole(file, size)
	if err != nil {
		return nil, err
	}
	return parseFile(data)
}

// readWhole reads a file of size bytes to its end, where a zip entry checks its sum.
func readWhole(r io.Reader, size int64) ([]byte, error) {
	r = checkedReader{r}
	data, err := readGrowing(r, size)
	if err != nil {
		return nil, err
	}
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return nil, fmt.Errorf("it has more than the %d bytes of its size", size)
	case err != io.EOF:
		return nil, err
	}
	return data, nil
}

// Parse opens a whole file in memory. It keeps data, which must not be written to while
// the File or a view of it is in use; the header is copied.
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

// NewFile opens a file of size bytes that r reads: the header at once, 64 KiB first,
// tensors on demand, with up to 16 concurrent ReadAt calls per operation, or through a
// [RangeReader]. A stored zip or tar member is an [io.SectionReader]. Close does not
// close r.
func NewFile(r io.ReaderAt, size int64) (*File, error) {
	switch {
	case r == nil:
		return nil, prefixed(errors.New("the io.ReaderAt of a file is nil"))
	case size < 0: // perhaps a Content-Length
		return nil, prefixed(fmt.Errorf("a file of %d bytes", size))
	}
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
