//go:build purego || !amd64

package float

import "testing"

// withKernels runs f with the kernels of this processor, if it has any.
func withKernels(t *testing.T, f func(t *testing.T)) { f(t) }
