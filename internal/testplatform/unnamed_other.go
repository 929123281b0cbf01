//go:build !linux

package testplatform

import "testing"

// HasUnnamedFiles returns false, because only Linux has files without a name.
func HasUnnamedFiles(testing.TB, string) bool { return false }
