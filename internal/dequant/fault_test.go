//go:build linux || darwin

package dequant

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// before returns n bytes that end where an inaccessible page begins.
func before(t *testing.T, n int) []byte {
	page := os.Getpagesize()
	size := (n + page - 1) / page * page
	b, err := syscall.Mmap(-1, 0, size+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(b)) })
	require.NoError(t, syscall.Mprotect(b[size:], syscall.PROT_NONE))
	return b[size-n : size : size]
}

// TestShortSlices: codes may end where memory ends. If there are fewer codes than elements, Go
// panics before the assembly reads beyond the last code.
func TestShortSlices(t *testing.T) {
	var table Table
	dst := make([]float32, 64)
	for bits := 1; bits <= 8; bits++ {
		p, n := Packing{Bits: bits}, 8*bits
		require.NotPanics(t, func() { p.Unpack(dst, before(t, n), &table) }, "%d bits", bits)
		if bits == 4 || bits == 8 { // with other widths, missing codes are 0
			require.Panics(t, func() { p.Unpack(dst, before(t, n-1), &table) }, "%d bits", bits)
		} else {
			require.NotPanics(t, func() { p.Unpack(dst, before(t, n-1), &table) }, "%d bits", bits)
		}
		require.NotPanics(t, func() { UnpackDown(dst, before(t, 4*64), nil, 0, bits, &table) }, "%d bits", bits)
		require.Panics(t, func() { UnpackDown(dst, before(t, 4*64-1), nil, 0, bits, &table) }, "%d bits", bits)
	}
}
