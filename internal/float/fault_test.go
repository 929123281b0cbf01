//go:build linux || darwin

package float

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// fencedPage returns a page of memory between two inaccessible pages.
func fencedPage(t *testing.T) []byte {
	size := os.Getpagesize()
	b, err := syscall.Mmap(-1, 0, 3*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(b)) })
	require.NoError(t, syscall.Mprotect(b[:size], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(b[2*size:], syscall.PROT_NONE))
	return b[size : 2*size : 2*size]
}

func init() { kernelTests["ReadsOnlySrc"] = TestConvertReadsOnlySrc }

// TestConvertReadsOnlySrc: the last tensor of a mapped file may end where the mapping ends, so a
// kernel must not read outside of src. In this test, such a read is a fault.
func TestConvertReadsOnlySrc(t *testing.T) {
	src, dst := fencedPage(t), fencedPage(t)
	copy(src, randomFloats(len(src)))
	for _, p := range vectorPairs {
		for n := 1; n <= 100; n++ {
			in, out := n*p.from.Bits()/8, n*p.to.Bits()/8
			for _, nonTemporal := range []bool{false, true} {
				Convert(dst[:out], p.to, src[:in], p.from, nonTemporal)
				Convert(dst[len(dst)-out:], p.to, src[len(src)-in:], p.from, nonTemporal)
			}
		}
	}
}
