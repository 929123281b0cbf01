//go:build !linux

package osfile

import (
	"errors"
	"io/fs"
	"os"
)

func allocate(*os.File, int64) error { return errors.ErrUnsupported }

// startWriteback does nothing: the sync at the end flushes everything.
func startWriteback(*os.File, int64, int64) {}

func openUnnamed(string, fs.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }

func link(*os.File, string) error { return errors.ErrUnsupported }

func kept(*os.File) bool { return false }

// Cached cannot tell.
func Cached(*os.File, int64) bool { return false }

// ReadAhead leaves readahead to the system.
func ReadAhead(*os.File, int64, int64) {}
