package dest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A Shared is a folder, which several processes of several machines can fill together.
type Shared interface {
	Destination

	// Put writes a small file, which appears complete or not at all. It replaces one
	// of that name.
	Put(name string, data []byte) error

	// Files returns the files in the folder, or in dir in it, without folders. If fresh is
	// set, a file that another process has completed before is among them, on whatever machine.
	Files(dir string, fresh bool) (map[string]Stored, error)

	// Read returns the first n bytes of a file, or all if it is shorter.
	Read(name string, n int64) ([]byte, error)

	// Create writes a small file unless there is one of that name: then the error wraps
	// fs.ErrExist. Of several processes that do so at once, one creates it, and it is
	// complete when others see it. Where the store cannot do that, the error wraps
	// errors.ErrUnsupported.
	Create(name string, data []byte) error

	// WriteShard writes a file, which appears complete or not at all. It replaces one of
	// that name. last is called when all is written: after an error of it, there is no
	// new file. The metadata is that of tensors.
	WriteShard(name string, s Shard, metadata map[string]string, last func() error) error

	// Open opens the checkpoint in the folder.
	Open() (*safetensors.File, error)

	// Remove removes a file, if it is there.
	Remove(name string) error

	// Sweep removes what processes that were killed have left over. Those that still
	// write fail.
	Sweep()

	// PathOf is the path of a file on this machine, or its URL.
	PathOf(name string) string

	// AtOnce is how many shards are best written concurrently.
	AtOnce() int
}

// MostSmall is more than a small file has.
const MostSmall = 64 << 20

// Stored describes a file. The version is another when the file was replaced.
type Stored struct {
	Size    int64
	Version string
}

func (f folder) path(name string) (string, error) {
	local, err := filepath.Localize(name)
	if err != nil {
		return "", fmt.Errorf("%q: %w", name, err)
	}
	return filepath.Join(f.name, local), nil
}

// place returns the path of a file to be written, whose folder is there.
func (f folder) place(name string) (string, error) {
	path, err := f.path(name)
	if err == nil {
		err = osfile.MkdirAll(filepath.Dir(path))
	}
	return path, err
}

// Files changes the folder before it lists it, to have a fresh list: a client of NFS
// lists what it remembers for up to a minute, unless it has changed the folder itself.
func (f folder) Files(dir string, fresh bool) (map[string]Stored, error) {
	if fresh {
		if err := f.touch(); err != nil {
			return nil, err
		}
	}
	files := make(map[string]Stored)
	dir = f.PathOf(dir)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return files, ignoreAbsent(err)
	}
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(dir, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // a temporary file, gone meanwhile
		case err != nil:
			return nil, err
		case info.Mode().IsRegular():
			files[e.Name()] = Stored{info.Size(), strconv.FormatInt(info.ModTime().UnixNano(), 10)}
		}
	}
	return files, nil
}

func (f folder) temp() string {
	return filepath.Join(f.name, fmt.Sprintf("%s%016x.tmp", osfile.TempPrefix, rand.Uint64()))
}

func (f folder) touch() error {
	temp := f.temp()
	return errors.Join(os.Mkdir(temp, 0o777), ignoreAbsent(os.Remove(temp)))
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (f folder) Read(name string, n int64) ([]byte, error) {
	path, err := f.path(name)
	if err != nil {
		return nil, err
	}
	file, _, err := osfile.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, n))
}

// Create links a complete file to its name, which fails if the name is taken. The answer
// of an NFS server that it is may come from this process's own first try: that the
// content is the same is all that counts.
func (f folder) Create(name string, data []byte) error {
	path, err := f.place(name)
	if err != nil {
		return err
	}
	const tries = 3 // another process may sweep the temporary file
	for range tries {
		if err = f.link(path, data); !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) {
		err = fmt.Errorf("%s: a file system without links: %w: %w", f.name, errors.ErrUnsupported, err)
	}
	return err
}

func (f folder) link(path string, data []byte) error {
	temp := f.temp()
	if err := WriteFile(temp, Writing(data)); err != nil {
		return err
	}
	defer os.Remove(temp)
	return osfile.Named(path, func() error { return os.Link(temp, path) })
}

func (f folder) Put(name string, data []byte) error {
	path, err := f.place(name)
	if err != nil {
		return err
	}
	return WriteFile(path, Writing(data))
}

// WriteShard gives a file its name when it is written under a temporary one, flushed to the disk.
func (f folder) WriteShard(name string, s Shard, metadata map[string]string, last func() error) error {
	path, err := f.place(name)
	if err != nil {
		return err
	}
	temp := f.temp()
	if s.CopyTo != nil {
		err = writeCopy(temp, s.CopyTo)
	} else {
		err = safetensors.WriteFile(temp, s.Tensors, metadata)
	}
	if err == nil && last != nil {
		err = last()
	}
	if err == nil {
		err = rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return fmt.Errorf("writing %s: %w", path, term.Bare(err))
	}
	return nil
}

// writeCopy gives a file of package os to copyTo, so that the system can copy.
func writeCopy(name string, copyTo func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	err = copyTo(file)
	if err == nil {
		err = file.Sync()
	}
	return cmp.Or(err, file.Close())
}

func (f folder) Open() (*safetensors.File, error) { return safetensors.Open(f.name) }

func (f folder) PathOf(name string) string { return filepath.Join(f.name, filepath.FromSlash(name)) }

func (f folder) Remove(name string) error {
	path, err := f.path(name)
	if err != nil {
		return err
	}
	return ignoreAbsent(os.Remove(path))
}

// Sweep leaves those of WriteShards, which has a lock on what it writes.
func (f folder) Sweep() {
	names, _ := fs.Glob(os.DirFS(f.name), osfile.TempPrefix+strings.Repeat("[0-9a-f]", 16)+".tmp")
	for _, name := range names {
		os.Remove(f.PathOf(name))
	}
}

// AtOnce is 4: one file is flushed while others are written.
func (f folder) AtOnce() int { return 4 }
