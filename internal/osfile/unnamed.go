package osfile

import (
	"errors"
	"io/fs"
	"path/filepath"
)

// createUnnamed creates a file without a name, if a file can get a name later. Otherwise it creates
// one with a temporary name.
//
// Whether a file can get a name later depends on the file system, on the sandbox and on whether
// /proc is mounted. createUnnamed tries it with another file, which it names and removes, so that
// no save fails for this reason at its end. The file itself could not get a name a second time.
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
		return trial, temp, nil // the trial file is as good as one of createTemp
	}
	trial.Close()
	return createUntried(dir, tag, mode)
}

// createUntried is like createUnnamed, but without the trial, because a file in the folder has
// passed it.
func createUntried(dir, tag string, mode fs.FileMode) (File, string, error) {
	if f, err := openMasked(dir, mode); err == nil {
		return f, "", nil
	}
	return createTemp(dir, tag, mode)
}

// openMasked opens a file without a name. It refuses a file that everybody may write: before
// version 6, Linux does not apply the umask to a file without a name if the file system has no
// access control lists.
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

// link gives a finished file without a name a temporary name. The file is left behind only if the
// process is killed between this and the rename.
func (a *Atomic) link() error {
	temp, err := newName(filepath.Dir(a.name), a.settings.Tag, a.file.Link)
	if err != nil {
		return a.fail("link", err)
	}
	a.temp = temp
	if a.file.Kept() {
		return nil
	}
	return a.sync()
}
