package safetensors

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

const errorPrefix = "safetensors: "

// nameError says which file an error is about that was met opening it.
func nameError(name string, err error) error {
	var path *fs.PathError
	if errors.As(err, &path) && path.Path == name {
		err = path.Err // the name once is enough
	}
	return fmt.Errorf("safetensors: %w", &fs.PathError{Op: "open", Path: name, Err: bare(err)})
}

// bare returns err without the prefix of this package, for use in an error that
// has it.
func bare(err error) error {
	if strings.HasPrefix(err.Error(), errorPrefix) {
		return bareError{err}
	}
	return err
}

type bareError struct{ error }

func (e bareError) Error() string { return strings.TrimPrefix(e.error.Error(), errorPrefix) }
func (e bareError) Unwrap() error { return e.error }

// A noTensorError is the error for a name that no tensor has.
type noTensorError string

func (e noTensorError) Error() string        { return errorPrefix + "no tensor is named " + quote(string(e)) }
func (e noTensorError) Is(target error) bool { return target == fs.ErrNotExist }
