package dcp

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/gosafetensors/safetensors"
)

// openError returns err with the name of the directory, unless it already names a file that could
// not be opened.
func openError(dir string, err error) error {
	if path := (*fs.PathError)(nil); err == nil || errors.As(err, &path) && path.Op == "open" {
		return err
	}
	return &fs.PathError{Op: "open", Path: dir, Err: err}
}

// broken returns a FormatError about a tensor, or about the checkpoint if tensor is "".
func broken(tensor, format string, args ...any) error {
	return &safetensors.FormatError{Offset: -1, Tensor: tensor, Reason: fmt.Sprintf(format, args...)}
}

// quote quotes a file name for an error.
func quote(name string) string { return fmt.Sprintf("%.200q", name) }
