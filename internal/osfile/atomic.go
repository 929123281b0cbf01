// Package osfile opens and creates files of the operating system. It opens only regular files, and
// creates new files atomically and durably.
package osfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// An Atomic is a new file that gets its name only when it is complete and flushed to the disk. Its
// methods are called in this order: Reserve, WriteAt, Finish, Commit. Abort ends it at any point.
// Errors name the target, not the temporary file.
type Atomic struct {
	file     File
	name     string // name that the file will have
	temp     string // temporary name of the file, "" if it has none
	settings Settings
	named    bool // whether Rename has given the file its name, and TakeBack has not removed it
	ended    bool // whether the file was renamed or removed
}

// TempPrefix starts the names of temporary files, which end in .tmp.
const TempPrefix = ".safetensors-"

// SaverTag marks the temporary files of savers that lock the folder to which they write, as
// WriteShards does. A process that holds the lock may remove all files with this tag, because their
// savers have ended.
const SaverTag = "shards-"

// TempName returns a new random name for a temporary file in a folder. A file that is created under
// such a name, to be renamed later, has the tag from the beginning.
func TempName(dir, tag string) string {
	return filepath.Join(dir, fmt.Sprintf("%s%s%016x.tmp", TempPrefix, tag, rand.Uint64()))
}

// tagOf returns the tag in a name that TempName has returned, and "" for any other name.
func tagOf(name string) string {
	base, ok := strings.CutPrefix(filepath.Base(name), TempPrefix)
	digits := len(base) - len("0123456789abcdef.tmp")
	if !ok || digits < 0 || !strings.HasSuffix(base, ".tmp") {
		return ""
	}
	return base[:digits]
}

// Create creates a file in the folder of name, because a rename is atomic only within one file
// system. If the system allows it, the file has no name before Commit, so that a process that is
// killed leaves nothing behind. Otherwise it has a temporary name.
//
// If name is a regular file, the new file gets its mode. It has that mode from the beginning, so
// that no one else can read what only the owner could read. It also gets the owner and the group,
// if the system permits that.
func Create(name string) (*Atomic, error) { return Settings{}.Create(name) }

// Save creates a file, calls write to fill it, and gives it its name.
func Save(name string, write func(*Atomic) error) error { return Settings{}.Save(name, write) }

// Settings are settings for new files. The funcs Create and Save use the zero Settings.
type Settings struct {
	Tag string // part of temporary names, by which RemoveTagged finds files that are left over
	// Mode has the permissions of a new file before the umask, and the most permissions that a file
	// that replaces another one gets. 0 means 0666, and no limit for a file that replaces another
	// one.
	Mode fs.FileMode

	// Check, if it is not nil, is called by Ready.
	Check func() error
}

// Ready reports whether finished files may get their names: it returns the error of Check.
func (s Settings) Ready() error {
	if s.Check == nil {
		return nil
	}
	return s.Check()
}

// Create is like the func Create, but uses the settings s.
func (s Settings) Create(name string) (*Atomic, error) { return s.create(name, createUnnamed) }

// Save is like the func Save, but uses the settings s.
func (s Settings) Save(name string, write func(*Atomic) error) error {
	a, err := s.Create(name)
	if err != nil {
		return err
	}
	defer a.Abort()
	if err := write(a); err != nil {
		return Writing(name, err)
	}
	if err := a.Finish(); err != nil {
		return err
	}
	if err := s.Ready(); err != nil {
		return err
	}
	return a.Commit()
}

// Another creates a further file with the same settings as a. It must be in the same folder. If
// named is true, it has a temporary name. A file without a name stays open until Rename.
func (a *Atomic) Another(name string, named bool) (*Atomic, error) {
	if named || a.temp != "" {
		return a.settings.create(name, createTemp)
	}
	return a.settings.create(name, createUntried)
}

// create creates a file by calling newFile, which returns the file and its temporary name, or "" if
// it has none.
func (s Settings) create(name string, newFile func(dir, tag string, mode fs.FileMode) (File, string, error)) (*Atomic, error) {
	if name == "" { // an empty name would fail only at the rename
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrNotExist}
	}
	s.Tag = cmp.Or(s.Tag, tagOf(name))
	old, err := system.Lstat(name)
	replaces := err == nil && old.Mode()&fs.ModeSymlink == 0
	mode := cmp.Or(s.Mode, 0o666)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	case replaces:
		if err := checkRegular("replace", name, old); err != nil {
			return nil, err
		}
		mode = old.Mode().Perm() & cmp.Or(s.Mode, fs.ModePerm)
	}
	f, temp, err := newFile(filepath.Dir(name), s.Tag, mode|0o200) // the owner must be able to write it through f
	if err != nil {
		err = fail("create", name, err)
		if !errors.Is(err, syscall.EPERM) { // an immutable directory also returns EPERM
			err = required("create a file in which any part can be written", err)
		}
		return nil, err
	}
	a := &Atomic{file: f, name: name, temp: temp, settings: s}
	if !replaces {
		old = nil
	}
	if replaces || mode&0o200 == 0 {
		if err := inherit(f, old, mode); err != nil {
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

// newName gives a file a new random name in a folder. It calls bind with one name after another;
// bind must fail with fs.ErrExist if a name exists.
func newName(dir, tag string, bind func(name string) error) (string, error) {
	const tries = 100 // random names do not collide, but some file systems report every name as taken
	for i := 1; ; i++ {
		name := TempName(dir, tag)
		if err := bind(name); !errors.Is(err, fs.ErrExist) || i == tries {
			return name, err
		}
	}
}

// inherit sets the mode of f. If old is not nil, it also gives f the owner and the group of that
// file, if the system permits it. It sets the mode only if it differs, because some file systems
// allow no change.
func inherit(f File, old fs.FileInfo, mode fs.FileMode) error {
	if runtime.GOOS == "windows" { // there, the only bit of a mode is whether a file is writable
		return nil
	}
	now, err := f.Stat()
	if err != nil {
		return unlessMissing(err)
	}
	if old != nil {
		chown(f, now, old)
	} else {
		mode &= now.Mode().Perm() // the umask also applies
	}
	if mode != now.Mode().Perm() {
		err = f.Chmod(mode)
	}
	return unlessMissing(err)
}

// fail returns an error of an operation on a temporary file as an error of the operation on its
// target. It returns nil if err is nil.
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

// Writing returns an error of writing a file with the name of the file, unless the error is one of the system that
// contains this name.
func Writing(name string, err error) error {
	if path := new(fs.PathError); errors.As(err, &path) && path.Path == name {
		return err
	}
	return fmt.Errorf("writing %s: %w", name, err)
}

func (a *Atomic) fail(op string, err error) error { return fail(op, a.name, err) }

// Reserve makes the file size bytes long and reserves the space on the disk, so that a full disk is
// an error before anything is written. If the file system can do neither, that is not an error: the
// file then grows as it is written.
func (a *Atomic) Reserve(size int64) error {
	if size == 0 {
		return nil
	}
	err := a.file.Allocate(size)
	if isMissing(err) {
		err = unlessMissing(a.file.Truncate(size))
	}
	return a.fail("reserve space", err)
}

// WriteAt implements io.WriterAt. It also lets the system start to flush the bytes.
func (a *Atomic) WriteAt(b []byte, off int64) (int, error) {
	n, err := a.file.WriteAt(b, off)
	if err != nil {
		return n, required("write any part of a file", a.fail("write", err))
	}
	a.file.StartWriteback(off, int64(n))
	return n, nil
}

// Finish flushes the data to the disk and closes the file, because after a crash there must be no
// name without its data. If the file system cannot flush, Finish only closes the file. A file
// without a name stays open until it has a name.
//
// An interrupted close is not an error: on every system that Go supports, the file is then closed,
// and nothing is left to be written.
func (a *Atomic) Finish() error {
	if err := a.sync(); err != nil {
		return err
	}
	if a.temp == "" {
		return nil
	}
	if err := a.file.Close(); err != nil && !errors.Is(err, syscall.EINTR) {
		return a.fail("close", err)
	}
	return nil
}

func (a *Atomic) sync() error { return a.fail("sync", unlessMissing(a.file.Sync())) }

// Commit gives the finished file its name and flushes the folder, as Named does.
func (a *Atomic) Commit() error { return Named(a.name, a.Rename) }

// Rename gives the finished file its name.
func (a *Atomic) Rename() error {
	if a.temp == "" {
		if err := a.link(); err != nil {
			return err
		}
		defer a.file.Close() // closing it before would only delay the rename, since everything is flushed
	}
	if err := Rename(a.temp, a.name); err != nil {
		if runtime.GOOS == "windows" {
			err = fmt.Errorf("%w (on Windows a file that is open or mapped cannot be replaced: Close it first)", err)
		}
		return err
	}
	a.named, a.ended = true, true
	return nil
}

// TakeBack removes the file if Rename has given it its name. It does not restore a file that had
// that name before.
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
