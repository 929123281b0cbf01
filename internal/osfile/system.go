package osfile

import (
	"io"
	"io/fs"
	"os"
	"runtime"
)

// A System provides all operations on files and folders that a save needs. Tests replace it to
// inject faults. An implementation repeats interrupted calls, as package os does, except for Close,
// because the descriptor is gone after the first call.
type System interface {
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	ReadDir(name string) ([]fs.DirEntry, error)
	Mkdir(name string, mode fs.FileMode) error
	Create(name string, mode fs.FileMode) (File, error) // fails if the name exists
	CreateUnnamed(dir string, mode fs.FileMode) (File, error)
	OpenDir(name string) (Folder, error)
	Lock(dir string) (unlock func(), err error) // returns ErrLocked if the folder is locked
	Rename(from, to string) error
	Remove(name string) error
}

// A File is a new file of a System.
type File interface {
	io.WriterAt
	Link(name string) error // names a file that has no name; can be called once; fails if the name exists
	Kept() bool             // whether data that Sync flushes before Link has named the file survives a crash
	Stat() (fs.FileInfo, error)
	Chmod(mode fs.FileMode) error
	Chown(uid, gid int) error
	Allocate(size int64) error   // makes the file size bytes long and reserves the space
	Truncate(size int64) error   // makes the file size bytes long
	StartWriteback(off, n int64) // starts to flush n bytes from off on
	Sync() error
	Close() error
}

// A Folder is an open folder of a System.
type Folder interface {
	Sync() error
	Close() error
}

// system is the System that saves use. Only Wrap replaces it.
var system System = osSystem{}

// Wrap calls wrap with the current System and replaces that System with the result, until restore
// is called. It is for tests. No save may be in progress when Wrap or restore is called.
func Wrap(wrap func(System) System) (restore func()) {
	old := system
	system = wrap(old)
	return func() { system = old }
}

// An osSystem is the System that uses package os.
type osSystem struct{ FS }

func (osSystem) Lstat(name string) (fs.FileInfo, error)    { return os.Lstat(name) }
func (osSystem) Mkdir(name string, mode fs.FileMode) error { return os.Mkdir(name, mode) }
func (osSystem) Rename(from, to string) error              { return os.Rename(from, to) }
func (osSystem) Remove(name string) error                  { return os.Remove(name) }

func (osSystem) Create(name string, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	return osFile{f}, err
}

func (osSystem) OpenDir(name string) (Folder, error) {
	switch runtime.GOOS {
	case "windows", "plan9", "js", "wasip1":
		return noFolder{}, nil
	}
	return os.Open(name)
}

// A noFolder stands for a folder on systems that cannot flush folders.
type noFolder struct{}

func (noFolder) Sync() error  { return nil }
func (noFolder) Close() error { return nil }

func (osSystem) Lock(dir string) (unlock func(), err error) { return lockDir(dir, false) }

// An osFile is a File that uses package os.
type osFile struct{ *os.File }
