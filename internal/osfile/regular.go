package osfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// OpenRegular opens a regular file and returns its size in bytes. It never waits for the
// writer of a named pipe, and looks before it opens, since opening a device can have
// effects.
func OpenRegular(name string) (*os.File, int64, error) {
	info, err := os.Stat(name)
	if err == nil {
		err = checkRegular("open", name, info)
	}
	if err != nil {
		return nil, 0, err
	}
	return openNow(name)
}

// openNow opens a file that was regular, which may be another one by now.
func openNow(name string) (*os.File, int64, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|noWait, 0)
	return regular(name, f, err)
}

// OpenFS opens a regular file of an fs.FS and returns its size in bytes.
func OpenFS(fsys fs.FS, name string) (fs.File, int64, error) {
	f, err := fsys.Open(name)
	return regular(name, f, err)
}

// regular returns the size of a file that was opened, or closes it if it is not regular.
func regular[F fs.File](name string, f F, err error) (F, int64, error) {
	var none F
	if err != nil {
		return none, 0, err
	}
	info, err := f.Stat()
	if err == nil {
		err = checkRegular("open", name, info)
	}
	if err != nil {
		f.Close()
		return none, 0, err
	}
	return f, info.Size(), nil
}

// FS is the regular files and the folders of the operating system, by its names for them.
type FS struct{}

func (FS) Stat(name string) (fs.FileInfo, error)      { return os.Stat(name) }
func (FS) ReadDir(name string) ([]fs.DirEntry, error) { return os.ReadDir(name) }

func (FS) Open(name string) (fs.File, error) {
	f, _, err := OpenRegular(name)
	if err != nil {
		return nil, err // not a nil *os.File
	}
	return f, nil
}

// A Tree is where files are: in the operating system or in an fs.FS.
type Tree struct {
	FS   fs.FS
	Join func(...string) string // of a folder and a local, slash-separated name, or ..
}

// OS is the files of the operating system.
var OS = Tree{FS{}, filepath.Join}

// TreeOf returns an fs.FS in which a file or folder of that name will be opened.
func TreeOf(fsys fs.FS, name string) (Tree, error) {
	var err error
	switch {
	case fsys == nil:
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("the fs.FS is nil")}
	case !fs.ValidPath(name):
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return Tree{fsys, path.Join}, err
}

// IsDir reports whether there is a folder of that name.
func (t Tree) IsDir(name string) bool {
	info, err := fs.Stat(t.FS, name)
	return err == nil && info.IsDir()
}

// ReadRegular returns the content of a regular file of at most max bytes.
func ReadRegular(name string, max int64) ([]byte, error) {
	f, _, err := OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(data)) > max {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d bytes", max)}
	}
	return data, err
}

// checkRegular returns an error naming the kind of file unless it is a regular one.
func checkRegular(op, name string, info fs.FileInfo) error {
	kind := "not a regular file"
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		kind = "a directory"
	case mode&fs.ModeDevice != 0:
		kind = "a device"
	case mode&fs.ModeNamedPipe != 0:
		kind = "a named pipe"
	}
	return &fs.PathError{Op: op, Path: name, Err: errors.New("is " + kind)}
}
