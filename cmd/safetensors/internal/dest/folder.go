package dest

import (
	"io"
	"path/filepath"
)

// A Folder is a Destination that small files can be put into, next to the weights.
type Folder interface {
	Destination

	// Put writes a small file, which appears complete or not at all. It replaces one
	// of that name.
	Put(name string, data []byte) error
}

func (f folder) Put(name string, data []byte) error {
	path, err := f.path(name)
	if err != nil {
		return err
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return err
	}
	return WriteFile(path, writing(data))
}

func (o objects) Put(name string, data []byte) error {
	return o.b.Write(o.key(name), int64(len(data)), writing(data))
}

func writing(data []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}
}
