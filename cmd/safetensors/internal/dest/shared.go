package dest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/osfile"
)

// A Dir is a destination that is a folder: it has a place for files next to the weights.
type Dir interface {
	Destination

	// Lock prevents other processes from writing to the folder until unlock is called. If another
	// process has locked it, Lock returns an error. If together is true, it does not exclude other
	// processes that also set together. In a bucket, and on a file system without locks, it
	// excludes no one.
	Lock(together bool) (unlock func(), err error)

	// Put writes a small file. The file appears complete or not at all, and replaces a file with
	// the same name.
	Put(name string, data []byte) error

	// Files returns the files in the folder, or in dir, a folder in it. It does not return folders.
	// If fresh is true, the result includes every file that a process on any machine has completed
	// before.
	Files(dir string, fresh bool) (map[string]Stored, error)

	// Read returns the first n bytes of a file, or the whole file if it is shorter.
	Read(name string, n int64) ([]byte, error)

	// PathOf returns the path of a file on this machine, or its URL.
	PathOf(name string) string
}

// A Shared is a folder that several processes on several machines can fill together, shard by shard.
type Shared interface {
	Dir

	// Create writes a small file. If there is already a file with this name, the error wraps
	// fs.ErrExist. If several processes create it at the same time, one of them succeeds, and
	// others see only the complete file. If the store lacks this operation, the error wraps
	// errors.ErrUnsupported.
	Create(name string, data []byte) error

	// WriteShard writes a file. The file appears complete or not at all, and replaces a file with
	// the same name. After all bytes are written, WriteShard calls last, if it is not nil. If last
	// returns an error, there is no new file. metadata is for a file of tensors.
	WriteShard(name string, s Shard, metadata map[string]string, last func() error) error

	// Start returns the bytes that precede the data in the file that WriteShard writes for tensors,
	// and the header. It reads no data.
	Start(tensors map[string]safetensors.Tensor, metadata map[string]string) ([]byte, *safetensors.Header, error)

	// Open opens the checkpoint in the folder.
	Open() (*safetensors.File, error)

	// Remove removes a file. It is not an error if the file does not exist.
	Remove(name string) error

	// Sweep removes temporary files of processes that were killed, except the partial files listed
	// in keep. The caller must have locked the folder, so that no process still writes them.
	Sweep(keep ...string)

	// AtOnce returns the number of shards that are best written concurrently.
	AtOnce() int
}

// MostSmall is the largest size in bytes of a small file.
const MostSmall = 64 << 20

// A Stored describes a file in a folder. Version changes when the file is replaced.
type Stored struct {
	Size    int64
	Version string
}

// lockTries is the number of tries to lock a folder together with others, ten times a second. One
// try is not enough, because a process that only sweeps the folder locks it for a moment.
const lockTries = 50

// Lock creates the folder if it does not exist. A folder in the cache of a hub is an error. unlock removes
// the folders that were created since f was made, by Lock or for files below the folder, if they are empty
// and no other process has locked f.
func (f folder) Lock(together bool) (unlock func(), err error) {
	if err := checkCache(f.name); err != nil {
		return nil, err
	}
	if err := f.created.make(f.name); err != nil {
		return nil, err
	}
	lock := osfile.Hold
	if together {
		lock = osfile.Share
	}
	release, ok := lock(f.name)
	for i := 1; !ok && together && i < lockTries; i++ {
		time.Sleep(100 * time.Millisecond)
		release, ok = lock(f.name)
	}
	if !ok {
		return nil, fmt.Errorf("another process is writing to %s: try again when it has ended", term.Name(f.name))
	}
	return func() {
		if together && !f.created.none() {
			release()
			if release, ok = osfile.Hold(f.name); !ok {
				return
			}
		}
		f.created.remove()
		release()
		if runtime.GOOS == "windows" { // the lock is a file in the folder, which was not empty until now
			f.created.remove()
		}
	}, nil
}

// A created has the folders that a destination has created. A nil *created forgets them.
type created struct {
	mu    sync.Mutex
	names []string // the outermost first
}

// make creates a folder, and those above it.
func (c *created) make(name string) error {
	names, err := osfile.CreateFolders(name)
	if c != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.names = append(c.names, names...)
	}
	return err
}

// none reports whether no folder was created.
func (c *created) none() bool {
	if c == nil {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.names) == 0
}

// remove removes the folders that are empty.
func (c *created) remove() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	osfile.RemoveFolders(c.names)
}

// LockBriefly locks a folder for the moment in which a file in it is checked and replaced, and
// excludes all others that lock the folder until unlock is called. It waits five seconds for a lock of
// another process. After that it locks nothing: a long copy into the folder need not prevent a change
// of another file, and the caller still checks the file.
func LockBriefly(dir string) (unlock func()) {
	release, ok := osfile.Hold(dir)
	for i := 1; !ok && i < lockTries; i++ {
		time.Sleep(100 * time.Millisecond)
		release, ok = osfile.Hold(dir)
	}
	return release
}

// SweepAlone sweeps a folder, unless another process is writing to it.
func SweepAlone(to Shared) {
	if unlock, err := to.Lock(false); err == nil {
		to.Sweep()
		unlock()
	}
}

// checkName returns an error unless name is the name of a file in a folder, or in a folder below
// it.
func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." {
		return fmt.Errorf("%q is not the name of a file in the folder: %w", name, fs.ErrInvalid)
	}
	return nil
}

// path returns the path of a file in the folder.
func (f folder) path(name string) (string, error) {
	if err := checkName(name); err != nil {
		return "", err
	}
	local, err := filepath.Localize(name) // names that Windows reserves, such as NUL, are errors
	if err != nil {
		return "", fmt.Errorf("%q: %w", name, err)
	}
	return filepath.Join(f.name, local), nil
}

// place returns the path of a file that will be written, and creates its folder.
func (f folder) place(name string) (string, error) {
	path, err := f.path(name)
	if err == nil {
		err = f.created.make(filepath.Dir(path))
	}
	return path, err
}

// Files, if fresh is true, changes the folder before it lists it, because a client of NFS returns a
// cached list for up to a minute, unless it has changed the folder itself.
func (f folder) Files(dir string, fresh bool) (map[string]Stored, error) {
	if fresh {
		if err := f.touch(); err != nil {
			return nil, err
		}
	}
	path := f.name
	if dir != "" {
		var err error
		if path, err = f.path(dir); err != nil {
			return nil, err
		}
	}
	files := make(map[string]Stored)
	entries, err := osfile.ReadDir(path)
	if err != nil {
		return files, ignoreAbsent(err)
	}
	for _, e := range entries {
		info, err := osfile.Stat(filepath.Join(path, e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // a temporary file that was removed in the meantime
		case err != nil:
			return nil, err
		case info.Mode().IsRegular():
			files[e.Name()] = Stored{info.Size(), strconv.FormatInt(info.ModTime().UnixNano(), 10)}
		}
	}
	return files, nil
}

func (f folder) temp() string { return osfile.TempName(f.name, osfile.SaverTag) }

func (f folder) touch() error {
	temp := f.temp()
	return errors.Join(named(f.name, os.Mkdir(temp, 0o777), temp), ignoreAbsent(os.Remove(temp)))
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

// Create links a complete file to its name, which fails if the name is taken. If an NFS server
// reports that it is taken, the first try of this process may have succeeded. So the caller must
// compare the content.
func (f folder) Create(name string, data []byte) error {
	path, err := f.place(name)
	if err != nil {
		return err
	}
	const tries = 3 // another process may remove the temporary file
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
		return named(path, err, temp)
	}
	defer os.Remove(temp)
	return osfile.Named(path, func() error { return named(path, os.Link(temp, path), temp) })
}

func (f folder) Put(name string, data []byte) error {
	path, err := f.place(name)
	if err != nil {
		return err
	}
	return osfile.Settings{Tag: osfile.SaverTag}.Save(path, func(a *osfile.Atomic) error {
		_, err := a.WriteAt(data, 0)
		return err
	})
}

// WriteShard writes a file under a temporary name, flushes it to the disk, and then gives it its
// name.
func (f folder) WriteShard(name string, s Shard, metadata map[string]string, last func() error) error {
	path, err := f.place(name)
	if err != nil {
		return err
	}
	if s.Source != nil {
		return f.writeResumable(name, path, s, last)
	}
	temp := f.temp()
	if s.CopyTo != nil {
		err = writeCopy(temp, s.CopyTo)
	} else {
		err = safetensors.Saver{Align: f.align}.WriteFile(temp, s.Tensors, metadata)
	}
	if err == nil && last != nil {
		err = last()
	}
	if err == nil {
		err = rename(temp, path)
	}
	if err != nil {
		os.Remove(temp)
		return osfile.Writing(path, named(path, term.Bare(err), temp))
	}
	return nil
}

// named returns an error of writing or linking a temporary file as one of the file at path, which gets its content.
func named(path string, err error, temp string) error {
	switch at := err.(type) {
	case *fs.PathError:
		if at.Path == temp {
			return &fs.PathError{Op: at.Op, Path: path, Err: at.Err}
		}
	case *os.LinkError:
		if at.Old == temp {
			return &fs.PathError{Op: at.Op, Path: path, Err: at.Err}
		}
	}
	return err
}

// writeCopy passes an *os.File to copyTo, so that the operating system can do the copying.
func writeCopy(name string, copyTo func(io.Writer) error) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	err = copyTo(file)
	if err == nil {
		err = osfile.Flush(file)
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
	return ignoreAbsent(osfile.Remove(path))
}

// Sweep removes temporary files with SaverTag, including those of WriteShard, and partial files. It does
// not remove temporary files of saves to a single file: these do not lock the folder, and may still run.
func (f folder) Sweep(keep ...string) {
	osfile.RemoveTagged(f.name, osfile.SaverTag)
	f.sweepPartials(keep)
}

// AtOnce returns 4, so that one file is flushed while others are written.
func (f folder) AtOnce() int { return 4 }
