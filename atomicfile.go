package safetensors

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

// An atomicFile is a new file that takes its name only when it is complete and
// on the disk.
type atomicFile struct {
	*os.File
	name string // that it will have
	temp string // that it has; "" once it has been renamed or removed
}

// tempPrefix begins the names of temporary files.
const tempPrefix = ".safetensors-"

// createAtomic creates a temporary file in the folder of name: a rename is atomic
// only within one file system.
func createAtomic(name string) (*atomicFile, error) {
	old, err := os.Lstat(name)
	replaces := err == nil && old.Mode()&fs.ModeSymlink == 0
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("safetensors: %w", err)
	case replaces:
		if err := checkRegular(old); err != nil {
			return nil, fmt.Errorf("safetensors: %w", &fs.PathError{Op: "replace", Path: name, Err: err})
		}
	}
	for {
		temp := filepath.Join(filepath.Dir(name), fmt.Sprintf(tempPrefix+"%016x.tmp", rand.Uint64()))
		f, err := os.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("safetensors: %w", err)
		}
		a := &atomicFile{File: f, name: name, temp: temp}
		if replaces && runtime.GOOS != "windows" { // where a mode is only whether it can be written
			if err := f.Chmod(old.Mode().Perm()); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				a.abort()
				return nil, fmt.Errorf("safetensors: %w", err)
			}
		}
		return a, nil
	}
}

// finish brings the data to the disk: after a crash, a name must not be there
// without its data.
func (a *atomicFile) finish() error {
	err := a.Sync()
	if cerr := a.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// commit gives the finished file its name, then brings that to the disk.
func (a *atomicFile) commit() error {
	if err := a.rename(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(a.name))
}

func (a *atomicFile) rename() error {
	if err := os.Rename(a.temp, a.name); err != nil {
		if runtime.GOOS == "windows" {
			err = fmt.Errorf("%w (on Windows a file that is open or mapped cannot be replaced: Close it first)", err)
		}
		return fmt.Errorf("safetensors: %w", err)
	}
	a.temp = ""
	return nil
}

// abort removes the temporary file, unless commit has renamed it.
func (a *atomicFile) abort() {
	if a.temp == "" {
		return
	}
	a.Close()
	os.Remove(a.temp)
	a.temp = ""
}

// syncDir brings the names in a folder to the disk, where systems know of such.
func syncDir(dir string) error {
	switch runtime.GOOS {
	case "windows", "plan9", "js", "wasip1":
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !unsupported(err) {
		return fmt.Errorf("safetensors: %w", err)
	}
	return nil
}

// unsupported reports whether a file system does not sync folders.
func unsupported(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL)
}
