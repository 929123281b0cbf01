package torch

import (
	"errors"
	"io"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A readError is an error of the caller's reader. It does not mean that the bytes of the file break
// a rule.
type readError struct{ error }

func (e readError) Unwrap() error { return e.error }

// A marked reader turns the errors of r, except io.EOF, into readErrors.
type marked struct{ r io.ReaderAt }

func (m marked) ReadAt(p []byte, off int64) (int, error) {
	n, err := m.r.ReadAt(p, off)
	if err != nil && err != io.EOF {
		err = readError{err}
	}
	return n, err
}

// broken returns err as a FormatError about a file, or about a tensor in it unless tensor is "". The result
// wraps io.ErrUnexpectedEOF if err does. broken returns err unchanged if it comes from the caller's reader.
func broken(tensor string, err error) error {
	if errors.As(err, new(readError)) {
		return err
	}
	var format error = &safetensors.FormatError{Offset: -1, Tensor: tensor, Reason: prefix.Strip(err).Error()}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		format = prefix.Truncated{Err: format}
	}
	if errors.As(err, new(prefix.Foreign)) {
		return prefix.Foreign{Err: format}
	}
	return format
}
