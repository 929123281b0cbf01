package safetensors

import (
	"errors"
	"io"
	"io/fs"
	"math"

	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/parallel"
	xmmap "golang.org/x/exp/mmap"
)

// A folder is a tree of files that checkpoints are in, with a way to open them: files of the
// operating system, which are mapped or loaded into memory, or files of an fs.FS.
type folder struct {
	osfile.Tree
	openFile func(name string) (*File, error)
	atOnce   int // number of files that are opened concurrently
}

var (
	mapped = folder{osfile.OS, openMapped, shardsAtOnce}
	loaded = folder{osfile.OS, loadFile, 1} // each file is itself read in parallel
)

func folderOf(tree osfile.Tree) folder {
	open := func(name string) (*File, error) { return openFileFS(tree.FS, name) }
	return folder{tree, open, shardsAtOnce}
}

// openMapped opens a file and maps it.
func openMapped(name string) (*File, error) {
	f, size, err := osfile.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	file, err := openReader(f, size, f.Close)
	if err != nil {
		return nil, err
	}
	if size > math.MaxInt { // beyond the address space of a 32-bit system
		return file, nil
	}
	data, err := mmap(f, int(size))
	switch {
	case err == nil: // the mapping serves views and gathers; contiguous bytes are read from the file
		src := file.parts[0].src
		src.mem, src.mapped = data[src.base:], &mapping{file: f, bytes: data}
		src.release = func() error { return errors.Join(munmap(data), f.Close()) }
	case errors.Is(err, errors.ErrUnsupported):
		f.Close()
		return openUnmapped(name)
	}
	return file, nil
}

// openUnmapped opens a file on systems that cannot map files.
func openUnmapped(name string) (*File, error) {
	r, err := xmmap.Open(name)
	if err != nil {
		return nil, err
	}
	return openReader(r, int64(r.Len()), r.Close)
}

// loadFile opens a file and reads it into memory.
func loadFile(name string) (*File, error) {
	f, size, err := osfile.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := readTable(f, size)
	if err == nil {
		err = mem.CheckSize(t.dataSize())
	}
	if err != nil {
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

// openFileFS opens a file in an fs.FS. A file that cannot be read by offset is read to its end, since
// an entry of a zip archive verifies its checksum only there.
func openFileFS(fsys fs.FS, name string) (*File, error) {
	file, size, err := osfile.OpenFS(fsys, name)
	if err != nil {
		return nil, err
	}
	if r, ok := file.(io.ReaderAt); ok {
		return openReader(r, size, file.Close)
	}
	defer file.Close()
	return readFile(file)
}
