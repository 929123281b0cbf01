// Package prefix adds the name of the library to errors that leave it. It removes the name from
// errors that come back: from a callback, or from one package of the library to another. Within the
// library, errors have no prefix.
package prefix

import (
	"errors"
	"io"
	"io/fs"
)

// text is the beginning of every error that leaves the library.
const text = "safetensors: "

// A prefixed is an error with the prefix. It has a type of its own, so that Strip need not compare
// texts: an error of a caller that happens to start with the same word is not changed.
type prefixed struct{ err error }

func (e *prefixed) Error() string { return text + e.err.Error() }
func (e *prefixed) Unwrap() error { return e.err }

// Add returns err with the prefix. It adds the prefix only once. It returns nil for nil.
func Add(err error) error {
	if err == nil {
		return nil
	}
	return &prefixed{Strip(err)}
}

// Added returns v and Add(err), the results of an exported func.
func Added[T any](v T, err error) (T, error) { return v, Add(err) }

// Strip returns err without the prefix that Add has added.
func Strip(err error) error {
	if e, ok := err.(*prefixed); ok {
		return e.err
	}
	return err
}

// OpenError returns err as the error of opening a file, without the prefix. The text contains the
// name of the file once. It returns nil if err is nil.
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

// An Absent is an error that wraps [fs.ErrNotExist] without adding to the text of Err.
type Absent struct{ Err error }

func (e Absent) Error() string        { return e.Err.Error() }
func (e Absent) Unwrap() error        { return e.Err }
func (e Absent) Is(target error) bool { return target == fs.ErrNotExist }

// A Foreign reports that torch.save did not write a file. Error returns the text of Err. Package
// checkpoint ignores such a file if no library would open it.
type Foreign struct{ Err error }

func (e Foreign) Error() string { return e.Err.Error() }
func (e Foreign) Unwrap() error { return e.Err }

// A Truncated is an error that wraps [io.ErrUnexpectedEOF] without adding to the text of Err.
type Truncated struct{ Err error }

func (e Truncated) Error() string        { return e.Err.Error() }
func (e Truncated) Unwrap() error        { return e.Err }
func (e Truncated) Is(target error) bool { return target == io.ErrUnexpectedEOF }

// An Unsupported is an error that wraps [errors.ErrUnsupported] without adding to the text of Err.
type Unsupported struct{ Err error }

func (e Unsupported) Error() string        { return e.Err.Error() }
func (e Unsupported) Unwrap() error        { return e.Err }
func (e Unsupported) Is(target error) bool { return target == errors.ErrUnsupported }
