//go:build !linux

package osfile

import "os"

// Cached cannot tell.
func Cached(*os.File, int64) bool { return false }

// ReadAhead leaves readahead to the system.
func ReadAhead(*os.File, int64, int64) {}
