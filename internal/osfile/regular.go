package osfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// OpenRegular opens a regular file and returns its size in bytes. It never waits for the
// writer of a named pipe, and looks before it opens, since opening a device can have
// effects.
func OpenRegular(name string) (*os.File, int64, error) {
	info, err := os.Stat(name)
	if err == nil {
		err = CheckRegular(info)
	}
	if err != nil {
		return nil, 0, err
	}
	return openNow(name)
}

// openNow opens a file that was regular, which may be another one by now.
func openNow(name string) (*os.File, int64, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil {
		err = CheckRegular(info)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// ReadRegular returns the content of a regular file of at most max bytes.
func ReadRegular(name string, max int64) ([]byte, error) {
	f, _, err := OpenRegular(name)
	if err != nil {
		if _, named := err.(*fs.PathError); !named {
			err = &fs.PathError{Op: "open", Path: name, Err: err}
		}
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, max+1))
	if err == nil && int64(len(data)) > max {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("it has more than %d bytes", max)}
	}
	return data, err
}

// CheckRegular returns an error naming the kind of file unless it is a regular
// one.
func CheckRegular(info fs.FileInfo) error {
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		return errors.New("is a directory")
	case mode&fs.ModeDevice != 0:
		return errors.New("is a device")
	case mode&fs.ModeNamedPipe != 0:
		return errors.New("is a named pipe")
	default:
		return errors.New("is not a regular file")
	}
}
