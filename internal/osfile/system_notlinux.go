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

// StartWriteback does nothing: the sync at the end flushes everything.
func (osFile) StartWriteback(int64, int64) {}

// Cached cannot tell.
func Cached(*os.File, int64) bool { return false }

// ReadAhead leaves readahead to the system.
func ReadAhead(*os.File, int64, int64) {}
