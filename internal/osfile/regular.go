package osfile

import (
	"errors"
	"io/fs"
	"os"
)

// OpenRegular opens a regular file and returns its size in bytes. It looks
// before it opens, since opening a named pipe would wait for a writer.
func OpenRegular(name string) (*os.File, int64, error) {
	info, err := os.Stat(name)
	if err == nil {
		err = CheckRegular(info)
	}
	if err != nil {
		return nil, 0, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
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
