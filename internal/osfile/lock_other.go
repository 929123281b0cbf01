//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package osfile

import (
	"io"
	"path/filepath"
	"sync"
)

// locked holds the folders that this process has locked: others are not kept out.
var locked sync.Map

func lock(dir string) (io.Closer, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if _, taken := locked.LoadOrStore(dir, nil); taken {
		return nil, ErrLocked
	}
	return lockedDir(dir), nil
}

type lockedDir string

func (d lockedDir) Close() error {
	locked.Delete(string(d))
	return nil
}
