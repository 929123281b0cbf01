package osfile

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// createUnnamed creates a file without a name, if it can have one later, or else one
// with a temporary name.
//
// Whether it can depends on the file system, on what a sandbox permits and on whether
// /proc is mounted. Another file that gets a name and loses it again shows it, so that
// no save fails for it at its end; the same file could not get a name a second time.
func createUnnamed(dir, tag string, mode fs.FileMode) (File, string, error) {
	trial, err := openMasked(dir, mode)
	if err != nil {
		return createTemp(dir, tag, mode)
	}
	temp, err := newName(dir, tag, trial.Link)
	if err != nil {
		trial.Close()
		return createTemp(dir, tag, mode)
	}
	if err := system.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return trial, temp, nil // as good as one of createTemp
	}
	trial.Close()
	return createUntried(dir, tag, mode)
}

// createUntried is createUnnamed in a folder where another file has shown that it can.
func createUntried(dir, tag string, mode fs.FileMode) (File, string, error) {
	if f, err := openMasked(dir, mode); err == nil {
		return f, "", nil
	}
	return createTemp(dir, tag, mode)
}

// openMasked opens a file without a name. It refuses one that everybody may write to:
// before version 6, Linux does not apply the umask to such a file where the file system
// has no access control lists.
func openMasked(dir string, mode fs.FileMode) (File, error) {
	f, err := system.CreateUnnamed(dir, mode)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&0o002 != 0 {
		err = errors.ErrUnsupported
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// link gives a finished file that has no name a temporary one. Only a process that is
// killed from here to the rename leaves the file behind.
func (a *Atomic) link() error {
	temp, err := newName(filepath.Dir(a.name), a.tag, a.file.Link)
	if err != nil {
		return a.fail("link", err)
	}
	a.temp = temp
	if a.file.Kept() {
		return nil
	}
	return a.fail("sync", a.file.Sync())
}
