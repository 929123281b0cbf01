//go:build !unix && !windows

package safetensors

import (
	"errors"
	"os"
)

// mmap fails: files cannot be mapped on this system.
func mmap(*os.File, int64) ([]byte, error) { return nil, errors.ErrUnsupported }

func munmap([]byte) error { return nil }
