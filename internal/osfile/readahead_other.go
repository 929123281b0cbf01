//go:build !linux

package osfile

import "os"

// ReadAhead does nothing: systems read ahead by themselves.
func ReadAhead(*os.File, int64, int64) {}
