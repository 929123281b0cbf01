package osfile

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Instead is the advice at the end of the text of a MissingError. A program whose users do not call
// the funcs of package safetensors replaces it when it starts.
var Instead = "use Write, which writes to any io.Writer"

// A MissingError reports that a file system lacks a call without which no save is possible.
type MissingError struct {
	Call   string // "rename", as in: this file system cannot rename
	Advice string // what to do
	Err    error  // error of the call
}

func (e *MissingError) Error() string {
	text := fmt.Sprintf("%v (this file system cannot %s: %s)", e.Err, e.Call, e.Advice)
	if errors.Is(e.Err, syscall.EPERM) {
		text += ", unless the file or its folder is protected: by an attribute, or as in a sticky folder"
	}
	return text
}

func (e *MissingError) Unwrap() error { return e.Err }

// isMissing reports whether err means that the file system, or the sandbox around the process,
// does not offer a call. Mounts of buckets and of HDFS return any of these errors, and none of
// them means that data could not be written, as EIO and ENOSPC do.
func isMissing(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM)
}

// unlessMissing returns the error of a call that is not essential for a save. It returns nil if the
// file system does not offer the call.
func unlessMissing(err error) error {
	if isMissing(err) {
		return nil
	}
	return err
}

// required returns the error of a call that is essential for a save. It returns a MissingError if
// the file system does not offer the call.
func required(call string, err error) error { return requiredOr(call, Instead, err) }

// requiredOr is like required, but gives other advice.
func requiredOr(call, advice string, err error) error {
	if isMissing(err) {
		return &MissingError{call, advice, err}
	}
	return err
}

// Flush flushes the data of an open file to the disk, if its file system has such a call.
func Flush(f *os.File) error { return unlessMissing(f.Sync()) }

// Rename renames a file within its directory. Its errors contain the new name.
func Rename(from, to string) error {
	return required("rename", fail("rename", to, system.Rename(from, to)))
}
