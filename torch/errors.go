package torch

import (
	"errors"
	"io"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A readError is an error of a reader: the bytes are not at fault.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// A marked reader makes its errors readErrors.
type marked struct{ r io.ReaderAt }

func (m marked) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.r.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = readError{err}
	}
	return n, err
}

// broken returns an error about the bytes of a file, or of a tensor in it, as a
// FormatError, unless it is that of a reader.
func broken(tensor string, err error) error {
	if errors.As(err, new(readError)) {
		return err
	}
	return &safetensors.FormatError{Offset: -1, Tensor: tensor, Reason: prefix.Strip(err).Error()}
}
