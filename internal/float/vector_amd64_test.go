//go:build !purego

package float

import "testing"

// TestAVX2 runs the tests of the kernels without AVX-512, as on processors that lack it.
func TestAVX2(t *testing.T) {
	if !hasAVX512 {
		t.Skip("the tests themselves run without AVX-512")
	}
	hasAVX512 = false
	defer func() { hasAVX512 = true }()
	for name, test := range kernelTests {
		t.Run(name, test)
	}
}
