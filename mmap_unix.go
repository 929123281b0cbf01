//go:build unix

package safetensors

import (
	"math"
	"os"
	"syscall"
)

// mmap maps the first size bytes of f for reading. The mapping outlives f.
func mmap(f *os.File, size int64) ([]byte, error) {
	if size > math.MaxInt {
		return nil, syscall.ENOMEM // beyond the address space of a 32-bit system
	}
	return syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
}

func munmap(b []byte) error { return syscall.Munmap(b) }
