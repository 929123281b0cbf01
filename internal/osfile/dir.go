package osfile

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"
)

// A Dir is an open folder whose names can be flushed.
type Dir struct{ Folder }

// OpenDir opens a folder.
func OpenDir(name string) (*Dir, error) {
	f, err := system.OpenDir(name)
	return &Dir{f}, err
}

// Sync flushes the names in the folder, where its file system has such a call.
func (d *Dir) Sync() error {
	err := d.Folder.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) { // it has none
		return nil
	}
	return err
}

// Named calls bind, which gives a file its name, and flushes the folder. It opens the
// folder first, so that an error of that leaves what has the name as it was. An error of
// the flush comes after the rename, and says so.
func Named(name string, bind func() error) error {
	dir, err := OpenDir(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := bind(); err != nil {
		return err
	}
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("%s was replaced, but may be the old file after a crash: %w", name, err)
	}
	return nil
}

// ReadDir returns the sorted entries of a folder.
func ReadDir(name string) ([]fs.DirEntry, error) { return system.ReadDir(name) }

// Remove removes a file. That is durable when its folder has been synced.
func Remove(name string) error { return system.Remove(name) }

// RemoveTagged removes the temporary files with a tag from a folder. Those that it
// cannot remove stay.
func RemoveTagged(dir, tag string) error {
	entries, err := system.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, TempPrefix+tag) && strings.HasSuffix(name, ".tmp") {
			system.Remove(filepath.Join(dir, name))
		}
	}
	return nil
}

// MkdirAll creates a folder, and those above it that are missing, and flushes their
// names: what is in a folder is not durable before the folder is. If that fails, it
// removes the folder again, lest the next call take it for durable.
func MkdirAll(name string) error {
	name = filepath.Clean(name)
	info, err := system.Stat(name)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(name)
	if parent != name {
		if err := MkdirAll(parent); err != nil {
			return err
		}
	}
	err = system.Mkdir(name, 0o777)
	if err != nil && !errors.Is(err, fs.ErrExist) { // another process may have created it just now
		return err
	}
	created := err == nil
	if err := syncDir(parent); err != nil {
		if created {
			system.Remove(name)
		}
		return err
	}
	return nil
}

// syncDir opens and flushes a folder.
func syncDir(name string) error {
	d, err := OpenDir(name)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// ErrLocked is the error of a System for a folder that somebody else has locked.
var ErrLocked = errors.New("somebody else has locked it")

// Lock locks a folder, for all that lock it, until unlock is called or the process
// ends. It reports false if it is locked already. Where the file system has no locks,
// or shows them to one machine only, it keeps nobody out.
func Lock(dir string) (unlock func(), ok bool) {
	unlock, err := system.Lock(dir)
	if err != nil {
		unlock = func() {}
	}
	return unlock, !errors.Is(err, ErrLocked)
}
