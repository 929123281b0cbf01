package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	xmmap "golang.org/x/exp/mmap"
)

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
