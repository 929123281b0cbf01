//go:build !unix && !windows

package safetensors

import (
	"errors"
	"os"
)

// mmap returns errors.ErrUnsupported: this system cannot map files.
func mmap(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }

func munmap([]byte) error { return nil }
