package storage

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/localfile"
)

// A Temp is a temporary file, which Close removes.
type Temp struct{ *os.File }

func (t *Temp) Close() error {
	err := t.File.Close()
	if removed := os.Remove(t.Name()); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

// Spool copies a stream into a temporary file, and returns its size.
func (s *Session) Spool(r io.Reader) (*Temp, int64, error) {
	f, err := os.CreateTemp("", "safetensors-*.tmp")
	if err != nil {
		return nil, 0, err
	}
	os.Remove(f.Name()) // where the system can: a command that is killed leaves nothing
	temp := &Temp{f}
	size, err := localfile.Await(s.Context, func() (int64, error) { return io.Copy(f, r) })
	if err != nil {
		temp.Close()
		return nil, 0, err
	}
	return temp, size, nil
}
