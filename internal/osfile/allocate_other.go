//go:build !linux

package osfile

import (
	"errors"
	"os"
)

func allocate(*os.File, int64) error { return errors.ErrUnsupported }

// startWriteback does nothing: the sync at the end flushes everything.
func startWriteback(*os.File, int64, int64) {}
