//go:build !purego

package moments

import "testing"

// withKernels runs f with the kernel, and again without.
func withKernels(t *testing.T, f func(t *testing.T)) {
	f(t)
	if hasVector {
		hasVector = false
		defer func() { hasVector = true }()
		t.Run("loop", f)
	}
}
