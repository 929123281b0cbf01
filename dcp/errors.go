package dcp

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// prefixed adds the library's prefix to an error that leaves this package. It
// returns nil for nil.
func prefixed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("safetensors: %w", err)
}

// bare removes the prefix from an error of package safetensors, which adds it to
// every error it returns but those of a caller's writer.
func bare(err error) error {
	if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), "safetensors: ") {
		return inner
	}
	return err
}

// openError says which folder could not be opened, unless the error says which file.
func openError(dir string, err error) error {
	if path := (*fs.PathError)(nil); errors.As(err, &path) && path.Op == "open" {
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
