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
	file  File
	name  string // the name it will have
	temp  string // the name it has, "" if none
	tag   string // of temporary names
	named bool   // it was renamed
	ended bool   // it was renamed or removed
}

// TempPrefix starts the names of temporary files, which end in .tmp.
const TempPrefix = ".safetensors-"

// Create creates a file in the folder of name, because a rename is atomic only within
// one file system. Where the system can, the file has no name before Commit: a process
// that is killed leaves nothing. Elsewhere it has a temporary one.
//
// If name is a regular file, the new one gets its mode, from the first moment on: what
// only its owner could read, nobody else can read meanwhile. It gets its owner and
// group where the system permits that.
func Create(name string) (*Atomic, error) { return CreateTagged(name, "") }

// CreateTagged is Create with a tag in temporary names, by which RemoveTagged finds the
// file, should it be left over.
func CreateTagged(name, tag string) (*Atomic, error) { return create(name, tag, createUnnamed) }

// Save has write write a file of Create, and gives it its name.
func Save(name string, write func(*Atomic) error) error {
	a, err := Create(name)
	if err != nil {
		return err
	}
	defer a.Abort()
	if err := write(a); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	if err := a.Finish(); err != nil {
		return err
	}
	return a.Commit()
}

// Another creates a file in the folder of a, as a was created, except that it has a
// temporary name if named is set. Without one, a file stays open until Rename.
func (a *Atomic) Another(name string, named bool) (*Atomic, error) {
	if named || a.temp != "" {
		return create(name, a.tag, createTemp)
	}
	return create(name, a.tag, createUntried)
}

// create creates a file by means of a func that returns it with its temporary name.
func create(name, tag string, in func(dir, tag string, mode fs.FileMode) (File, string, error)) (*Atomic, error) {
	if name == "" { // which looks like that of a new file until the rename
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrNotExist}
	}
	old, err := system.Lstat(name)
	replaces := err == nil && old.Mode()&fs.ModeSymlink == 0
	mode := fs.FileMode(0o666)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case replaces:
		if err := checkRegular("replace", name, old); err != nil {
			return nil, err
		}
		mode = old.Mode().Perm()
	}
	f, temp, err := in(filepath.Dir(name), tag, mode|0o200) // it is written through f
	if err != nil {
		return nil, fail("create", name, err)
	}
	a := &Atomic{file: f, name: name, temp: temp, tag: tag}
	if replaces {
		if err := inherit(f, old); err != nil {
			a.Abort()
			return nil, a.fail("chmod", err)
		}
	}
	return a, nil
}

// createTemp creates a file with a temporary name.
func createTemp(dir, tag string, mode fs.FileMode) (f File, temp string, err error) {
	temp, err = newName(dir, tag, func(temp string) (err error) {
		f, err = system.Create(temp, mode)
		return err
	})
	return f, temp, err
}

// newName gives a file a new random name in a folder by means of bind, which fails if
// there is such a name.
func newName(dir, tag string, bind func(name string) error) (string, error) {
	const tries = 100 // random numbers do not meet; some file systems call every name taken
	for i := 1; ; i++ {
		name := filepath.Join(dir, fmt.Sprintf("%s%s%016x.tmp", TempPrefix, tag, rand.Uint64()))
		if err := bind(name); !errors.Is(err, fs.ErrExist) || i == tries {
			return name, err
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
	if mode := old.Mode().Perm(); mode != now.Mode().Perm() {
		err = f.Chmod(mode)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// fail returns an error of an operation on a temporary file, nil if there is none, as one
// on its target.
func fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	var path *fs.PathError
	var link *os.LinkError
	if errors.As(err, &path) {
		err = path.Err
	} else if errors.As(err, &link) {
		err = link.Err
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (a *Atomic) fail(op string, err error) error { return fail(op, a.name, err) }

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
	return a.fail("reserve space", err)
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
// must not be there without its data. A file without a name stays open until it has one.
//
// An interrupted close has closed the file on every system that Go runs on, and nothing
// is left to be written then.
func (a *Atomic) Finish() error {
	if err := a.file.Sync(); err != nil {
		return a.fail("sync", err)
	}
	if a.temp == "" {
		return nil
	}
	if err := a.file.Close(); err != nil && !errors.Is(err, syscall.EINTR) {
		return a.fail("close", err)
	}
	return nil
}

// Commit gives the finished file its name and flushes the folder, as Named does.
func (a *Atomic) Commit() error { return Named(a.name, a.Rename) }

// Rename gives the finished file its name.
func (a *Atomic) Rename() error {
	if a.temp == "" {
		if err := a.link(); err != nil {
			return err
		}
		defer a.file.Close() // it would only delay the rename: all is flushed
	}
	if err := system.Rename(a.temp, a.name); err != nil {
		err = a.fail("rename", err)
		if runtime.GOOS == "windows" {
			err = fmt.Errorf("%w (on Windows a file that is open or mapped cannot be replaced: Close it first)", err)
		}
		return err
	}
	a.named, a.ended = true, true
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

// Abort removes the file, unless Rename has given it its name.
func (a *Atomic) Abort() {
	if a.ended {
		return
	}
	a.ended = true
	a.file.Close()
	if a.temp != "" {
		system.Remove(a.temp)
	}
}
