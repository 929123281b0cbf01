//go:build unix

package safetensors

import (
	"os"
	"syscall"
)

// mmap maps the first size bytes of f for reading. The mapping outlives f.
func mmap(f *os.File, size int) ([]byte, error) {
	return syscall.Mmap(int(f.Fd()), 0, size, syscall.PROT_READ, syscall.MAP_SHARED)
}

func munmap(b []byte) error { return syscall.Munmap(b) }
