//go:build !purego

package float

import "testing"

// withKernels runs f with the kernels of this processor. If it has AVX-512, it runs
// f again without it.
func withKernels(t *testing.T, f func(t *testing.T)) {
	f(t)
	if hasAVX512 {
		hasAVX512 = false
		defer func() { hasAVX512 = true }()
		t.Run("AVX2", f)
	}
}
