//go:build purego || !amd64

package moments

import "testing"

// withKernels runs f: there is no kernel.
func withKernels(t *testing.T, f func(t *testing.T)) { f(t) }
