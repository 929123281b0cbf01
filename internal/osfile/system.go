package osfile

import (
	"io"
	"io/fs"
	"os"
	"runtime"
)

// A System is the operating system as a save sees it: all that a save does to files
// and folders goes through it. Interrupted calls are repeated below it, as package
// os does; a close is not, because its descriptor is gone.
type System interface {
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	Mkdir(name string, mode fs.FileMode) error
	Create(name string, mode fs.FileMode) (File, error) // fails if there is such a name
	CreateUnnamed(dir string, mode fs.FileMode) (File, error)
	OpenDir(name string) (Folder, error)
	Lock(dir string) (unlock func(), err error) // ErrLocked if it is locked
	Rename(from, to string) error
	Remove(name string) error
}

// A File is a new file of a System.
type File interface {
	io.WriterAt
	Link(name string) error // of a file without a name, once; fails if there is such a name
	Kept() bool             // of one: whether what Sync flushes before Link is there after a crash
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
	Allocate(size int64) error   // makes it size bytes long and reserves the space; errors.ErrUnsupported where the system cannot
	Truncate(size int64) error   // makes it size bytes long
	StartWriteback(off, n int64) // starts to flush n bytes, from off on
	Sync() error
	Close() error
}

// A Folder is an open folder of a System.
type Folder interface {
	Sync() error
	Close() error
}

// system is what saves go through: the real one, except in tests.
var system System = osSystem{}

// Wrap is for tests: until restore is called, saves go through what wrap makes of
// the present System. No save may be in progress when either is called.
func Wrap(wrap func(System) System) (restore func()) {
	old := system
	system = wrap(old)
	return func() { system = old }
}

// An osSystem is package os.
type osSystem struct{ FS }

func (osSystem) Lstat(name string) (fs.FileInfo, error)    { return os.Lstat(name) }
func (osSystem) Mkdir(name string, mode fs.FileMode) error { return os.Mkdir(name, mode) }
func (osSystem) Rename(from, to string) error              { return os.Rename(from, to) }
func (osSystem) Remove(name string) error                  { return os.Remove(name) }

func (osSystem) Create(name string, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
	return osFile{f}, err
}

func (osSystem) OpenDir(name string) (Folder, error) {
	switch runtime.GOOS {
	case "windows", "plan9", "js", "wasip1":
		return noFolder{}, nil
	}
	return os.Open(name)
}

// A noFolder stands for a folder where folders cannot be flushed.
type noFolder struct{}

func (noFolder) Sync() error  { return nil }
func (noFolder) Close() error { return nil }

// An osFile is a file of package os.
type osFile struct{ *os.File }
