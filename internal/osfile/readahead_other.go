//go:build !linux

package osfile

import "os"

// ReadAhead leaves readahead to the system.
func ReadAhead(*os.File, int64, int64) {}
