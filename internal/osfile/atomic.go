// Package osfile opens and creates files of the operating system: regular ones
// only, and new ones atomically and durably.
package osfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// An Atomic is a new file that takes its name only when it is complete and
// flushed to the disk. Its life is Create, Reserve, WriteAt, Finish, Commit;
// Abort ends it at any point. Errors name the target, not the temporary file.
type Atomic struct {
	file *os.File
	name string // the name it will have
	temp string // the name it has; "" after it was renamed or removed
}

// TempPrefix starts the names of temporary files, which end in .tmp.
const TempPrefix = ".safetensors-"

// Create creates a temporary file in the folder of name, because a rename is
// atomic only within one file system. If name is a regular file, the new one has
// its mode.
func Create(name string) (*Atomic, error) {
	old, err := os.Lstat(name)
	replaces := err == nil && old.Mode()&fs.ModeSymlink == 0
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case replaces:
		if err := CheckRegular(old); err != nil {
			return nil, &fs.PathError{Op: "replace", Path: name, Err: err}
		}
	}
	f, err := createTemp(filepath.Dir(name))
	if err != nil {
		return nil, fail("create", name, err)
	}
	a := &Atomic{file: f, name: name, temp: f.Name()}
	if replaces && runtime.GOOS != "windows" { // whose only mode bit says whether a file is writable
		if err := f.Chmod(old.Mode().Perm()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			a.Abort()
			return nil, a.fail("chmod", err)
		}
	}
	return a, nil
}

// createTemp creates a file with a new random name in a folder.
func createTemp(dir string) (*os.File, error) {
	for {
		temp := filepath.Join(dir, fmt.Sprintf(TempPrefix+"%016x.tmp", rand.Uint64()))
		f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
	}
}

// fail returns an error of an operation on a temporary file as one on its target.
func fail(op, name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (a *Atomic) fail(op string, err error) error { return fail(op, a.name, err) }

// Target returns the name that the file will have.
func (a *Atomic) Target() string { return a.name }

// Reserve makes the file size bytes long and, where the system can, reserves the
// space on the disk, so that a full disk shows before anything is written.
func (a *Atomic) Reserve(size int64) error {
	if err := reserve(a.file, size); err != nil {
		return a.fail("reserve space", err)
	}
	return nil
}

// WriteAt implements io.WriterAt. The system starts to flush the bytes at once.
func (a *Atomic) WriteAt(b []byte, off int64) (int, error) {
	n, err := a.file.WriteAt(b, off)
	if err != nil {
		return n, a.fail("write", err)
	}
	startWriteback(a.file, off, int64(n))
	return n, nil
}

// Finish flushes the data to the disk and closes the file: after a crash, a name
// must not be there without its data.
func (a *Atomic) Finish() error {
	if err := a.file.Sync(); err != nil {
		return a.fail("sync", err)
	}
	if err := a.file.Close(); err != nil {
		return a.fail("close", err)
	}
	return nil
}

// Commit gives the finished file its name and flushes the folder.
func (a *Atomic) Commit() error {
	if err := a.Rename(); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(a.name))
}

// Rename gives the finished file its name.
func (a *Atomic) Rename() error {
	if err := os.Rename(a.temp, a.name); err != nil {
		if runtime.GOOS == "windows" {
			err = fmt.Errorf("%w (on Windows a file that is open or mapped cannot be replaced: Close it first)", err)
		}
		return err
	}
	a.temp = ""
	return nil
}

// Abort removes the temporary file, unless Rename has given it its name.
func (a *Atomic) Abort() {
	if a.temp == "" {
		return
	}
	a.file.Close()
	os.Remove(a.temp)
	a.temp = ""
}

// SyncDir flushes the names in a folder, on systems that have such a call.
func SyncDir(dir string) error {
	switch runtime.GOOS {
	case "windows", "plan9", "js", "wasip1":
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !unsupported(err) {
		return err
	}
	return nil
}

// unsupported reports whether an error says that the file system does not sync
// folders.
func unsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL)
}
