// Package prefix puts the name of the library before the errors that leave it, and
// takes it off those that come back in: out of a callback, or from one package of the
// library into another. Within the library errors have no prefix.
package prefix

import (
	"errors"
	"io/fs"
)

// text starts the text of every error of the library.
const text = "safetensors: "

// A prefixed error has a type of its own, so that nothing compares texts: an error of
// a caller that starts with the same word stays as it is.
type prefixed struct{ err error }

func (e *prefixed) Error() string { return text + e.err.Error() }
func (e *prefixed) Unwrap() error { return e.err }

// Add returns err with the prefix, once. It returns nil for nil.
func Add(err error) error {
	if err == nil {
		return nil
	}
	return &prefixed{Strip(err)}
}

// Added returns v, and err as Add does: what a func returns to a caller outside.
func Added[T any](v T, err error) (T, error) { return v, Add(err) }

// Strip returns err without the prefix that Add put there.
func Strip(err error) error {
	if e, ok := err.(*prefixed); ok {
		return e.err
	}
	return err
}

// OpenError returns the error of opening a file, with its name once; nil for nil. It has no
// prefix.
func OpenError(name string, err error) error {
	if err == nil {
		return nil
	}
	err = Strip(err)
	if path, ok := err.(*fs.PathError); ok && path.Path == name {
		err = path.Err
	}
	return &fs.PathError{Op: "open", Path: name, Err: err}
}

// An Unsupported is an error that wraps [errors.ErrUnsupported], which its text leaves out.
type Unsupported struct{ Err error }

func (e Unsupported) Error() string        { return e.Err.Error() }
func (e Unsupported) Unwrap() error        { return e.Err }
func (e Unsupported) Is(target error) bool { return target == errors.ErrUnsupported }
