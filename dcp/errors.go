package dcp

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/gosafetensors/safetensors"
)

// openError says which directory could not be opened, unless there is no error, or it says
// which file.
func openError(dir string, err error) error {
	if path := (*fs.PathError)(nil); err == nil || errors.As(err, &path) && path.Op == "open" {
		return err
	}
	return &fs.PathError{Op: "open", Path: dir, Err: err}
}

// broken returns the error of a rule that a tensor breaks.
func broken(tensor, format string, args ...any) error {
	return &safetensors.FormatError{Offset: -1, Tensor: tensor, Reason: fmt.Sprintf(format, args...)}
}

// quote quotes a file name for an error.
func quote(name string) string { return fmt.Sprintf("%.200q", name) }
