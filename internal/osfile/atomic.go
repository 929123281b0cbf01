// Package osfile opens and creates files of the operating system: regular ones
// only, and new ones atomically and durably.
package osfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"syscall"
)

// An Atomic is a new file that takes its name only when it is complete and
// flushed to the disk. Its life is Create, Reserve, WriteAt, Finish, Commit;
// Abort ends it at any point. Errors name the target, not the temporary file.
type Atomic struct {
	file  File
	name  string // the name it will have
	temp  string // the name it has; "" after it was renamed or removed
	named bool   // it was renamed
}

// TempPrefix starts the names of temporary files, which end in .tmp.
const TempPrefix = ".safetensors-"

// Create is CreateTagged without a tag.
func Create(name string) (*Atomic, error) { return CreateTagged(name, "") }

// CreateTagged creates a temporary file in the folder of name, because a rename is
// atomic only within one file system. If name is a regular file, the new one gets
// its mode, from the first moment on: what only its owner could read, nobody else
// can read meanwhile. It gets its owner and group where the system permits that.
// RemoveTagged finds the temporary file by the tag, should it be left over.
func CreateTagged(name, tag string) (*Atomic, error) {
	old, err := system.Lstat(name)
	replaces := err == nil && old.Mode()&fs.ModeSymlink == 0
	mode := fs.FileMode(0o666)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case replaces:
		if err := CheckRegular(old); err != nil {
			return nil, &fs.PathError{Op: "replace", Path: name, Err: err}
		}
		mode = old.Mode().Perm()
	}
	f, temp, err := createTemp(filepath.Dir(name), tag, mode)
	if err != nil {
		return nil, fail("create", name, err)
	}
	a := &Atomic{file: f, name: name, temp: temp}
	if replaces {
		if err := inherit(f, old); err != nil {
			a.Abort()
			return nil, a.fail("chmod", err)
		}
	}
	return a, nil
}

// createTemp creates a file with a new random name in a folder, of a mode before
// the umask, and returns its name.
func createTemp(dir, tag string, mode fs.FileMode) (File, string, error) {
	const tries = 100 // random numbers do not meet; some file systems call every name taken
	for i := 1; ; i++ {
		temp := filepath.Join(dir, fmt.Sprintf("%s%s%016x.tmp", TempPrefix, tag, rand.Uint64()))
		f, err := system.Create(temp, mode|0o200) // it is written through f
		if !errors.Is(err, fs.ErrExist) || i == tries {
			return f, temp, err
		}
	}
}

// inherit gives f the owner, the group and the mode of the file that it replaces.
// The owner and the group are kept where the system permits it. The mode is set
// only if the umask changed it: some file systems allow no change.
func inherit(f File, old fs.FileInfo) error {
	if runtime.GOOS == "windows" { // whose only mode bit says whether a file is writable
		return nil
	}
	now, err := f.Stat()
	if err != nil {
		return err
	}
	chown(f, now, old)
	if now.Mode().Perm() == old.Mode().Perm() {
		return nil
	}
	if err := f.Chmod(old.Mode().Perm()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
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
	if size == 0 {
		return nil
	}
	err := a.file.Allocate(size)
	if errors.Is(err, errors.ErrUnsupported) {
		err = a.file.Truncate(size)
	}
	if err != nil {
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
	a.file.StartWriteback(off, int64(n))
	return n, nil
}

// Finish flushes the data to the disk and closes the file: after a crash, a name
// must not be there without its data. An interrupted close has closed the file on
// every system that Go runs on, and nothing is left to be written then.
func (a *Atomic) Finish() error {
	if err := a.file.Sync(); err != nil {
		return a.fail("sync", err)
	}
	if err := a.file.Close(); err != nil && !errors.Is(err, syscall.EINTR) {
		return a.fail("close", err)
	}
	return nil
}

// Commit gives the finished file its name and flushes the folder. It opens the
// folder first, so that an error of that leaves the target as it was. An error of
// the flush comes after the rename, and says so.
func (a *Atomic) Commit() error {
	dir, err := OpenDir(filepath.Dir(a.name))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := a.Rename(); err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("%s was replaced, but may be the old file after a crash: %w", a.name, err)
	}
	return nil
}

// Rename gives the finished file its name.
func (a *Atomic) Rename() error {
	if err := system.Rename(a.temp, a.name); err != nil {
		if runtime.GOOS == "windows" {
			err = fmt.Errorf("%w (on Windows a file that is open or mapped cannot be replaced: Close it first)", err)
		}
		return err
	}
	a.temp, a.named = "", true
	return nil
}

// TakeBack removes the file again if Rename has given it its name. What had the name
// before does not come back.
func (a *Atomic) TakeBack() {
	if a.named {
		system.Remove(a.name)
		a.named = false
	}
}

// Abort removes the temporary file, unless Rename has given it its name.
func (a *Atomic) Abort() {
	if a.temp == "" {
		return
	}
	a.file.Close()
	system.Remove(a.temp)
	a.temp = ""
}
