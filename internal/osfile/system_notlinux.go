//go:build !linux

package osfile

import (
	"errors"
	"io/fs"
	"os"
)

func (osSystem) CreateUnnamed(string, fs.FileMode) (File, error) { return nil, errors.ErrUnsupported }

func (osFile) Link(string) error    { return errors.ErrUnsupported }
func (osFile) Kept() bool           { return false }
func (osFile) Allocate(int64) error { return errors.ErrUnsupported }

// StartWriteback does nothing, because the sync at the end flushes everything.
func (osFile) StartWriteback(int64, int64) {}

// Cached returns false, because this system cannot tell.
func Cached(*os.File, int64) bool { return false }

// ReadAhead does nothing: readahead is left to the system.
func ReadAhead(*os.File, int64, int64) {}
