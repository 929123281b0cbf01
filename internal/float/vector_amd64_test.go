//go:build !purego

package float

import "testing"

// TestAVX2 has the kernels do without AVX-512, as on other processors.
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
