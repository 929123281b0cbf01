//go:build purego || !amd64

package safetensors

import "testing"

// withKernels runs f with the kernels chosen here.
func withKernels(t *testing.T, f func(t *testing.T)) { f(t) }
