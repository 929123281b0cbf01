//go:build !linux

package testplatform

import "testing"

// HasUnnamedFiles reports whether a folder can have files without a name that get one
// later: only on Linux.
func HasUnnamedFiles(testing.TB, string) bool { return false }
