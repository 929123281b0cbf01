//go:build !purego

package dequant

import "testing"

// TestLoops has the loops do everything, as on other processors.
func TestLoops(t *testing.T) {
	defer func(has bool) { hasVector = has }(hasVector)
	hasVector = false
	t.Run("Unpack", TestUnpack)
	t.Run("UnpackDown", TestUnpackDown)
	t.Run("Groups", TestGroups)
}
