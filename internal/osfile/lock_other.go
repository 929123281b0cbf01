//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package osfile

import (
	"path/filepath"
	"sync"
)

// locked holds the folders that this process has locked: others are not kept out.
var locked sync.Map

func (osSystem) Lock(dir string) (unlock func(), err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if _, taken := locked.LoadOrStore(dir, nil); taken {
		return nil, ErrLocked
	}
	return func() { locked.Delete(dir) }, nil
}
