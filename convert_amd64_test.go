//go:build !purego

package safetensors

import "testing"

// withKernels runs f with the kernels chosen here and, if some of those are for
// AVX-512, with those for AVX2 in their place.
func withKernels(t *testing.T, f func(t *testing.T)) {
	f(t)
	if hasAVX512 {
		hasAVX512 = false
		defer func() { hasAVX512 = true }()
		t.Run("AVX2", f)
	}
}
