//go:build !linux

package osfile

import (
	"errors"
	"io/fs"
	"os"
)

func openUnnamed(string, fs.FileMode) (*os.File, error) { return nil, errors.ErrUnsupported }

func link(*os.File, string) error { return errors.ErrUnsupported }

func kept(*os.File) bool { return false }
