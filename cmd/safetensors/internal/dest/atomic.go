package dest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// WriteFile has write write a new file, which takes its name only when it is complete
// and flushed to the disk: what safetensors.WriteFile does, for other formats. A
// symbolic link is replaced, a file of another kind is refused, the mode of a file that
// is replaced is kept.
func WriteFile(name string, write func(io.Writer) error) (err error) {
	mode := fs.FileMode(0o666)
	old, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case old.Mode().IsRegular():
		mode = old.Mode().Perm()
	case old.Mode()&fs.ModeSymlink == 0:
		return &fs.PathError{Op: "replace", Path: name, Err: errors.New("is not a regular file")}
	}
	temp, err := os.OpenFile(filepath.Join(filepath.Dir(name), fmt.Sprintf(".safetensors-%016x.tmp", rand.Uint64())),
		os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o200)
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return &fs.PathError{Op: "create", Path: name, Err: failed.Err}
	}
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			temp.Close()
			os.Remove(temp.Name())
			err = fmt.Errorf("writing %s: %w", name, err)
		}
	}()
	if mode != 0o666 && runtime.GOOS != "windows" { // the umask may have changed it
		if err := temp.Chmod(mode); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	if err := write(temp); err != nil {
		return err
	}
	if err := temp.Sync(); err != nil {
		return err
	}
	if err := temp.Close(); err != nil {
		return err
	}
	return rename(temp.Name(), name)
}

// rename gives a file its name and flushes the folder. It opens the folder first, so
// that an error of that leaves the old file.
func rename(temp, name string) error {
	if runtime.GOOS == "windows" { // where folders have no flush
		return os.Rename(temp, name)
	}
	dir, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := os.Rename(temp, name); err != nil {
		return err
	}
	if err := sync(dir); err != nil {
		return fmt.Errorf("it was replaced, but may be the old file after a crash: %w", err)
	}
	return nil
}

// makeFolder makes a folder and those above it, and flushes the names of those that it makes:
// a flush of what is in a folder need not keep the folder.
func makeFolder(name string) error {
	name = filepath.Clean(name)
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(name)
	if above == name {
		return nil
	}
	if err := makeFolder(above); err != nil {
		return err
	}
	if err := os.Mkdir(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return flush(above)
}

// flush flushes the names in a folder to the disk.
func flush(name string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	return sync(dir)
}

// sync flushes a folder, where its file system can.
func sync(dir *os.File) error {
	err := dir.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}
