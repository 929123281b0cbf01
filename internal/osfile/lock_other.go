//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package osfile

import (
	"path/filepath"
	"sync"
)

// locks counts how often this process has locked each folder. -1 stands for a lock that is not
// shared. Other processes are not excluded.
var locks = struct {
	sync.Mutex
	of map[string]int
}{of: make(map[string]int)}

func lockDir(dir string, shared bool) (unlock func(), err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	locks.Lock()
	defer locks.Unlock()
	n := locks.of[dir]
	if n < 0 || n > 0 && !shared {
		return nil, ErrLocked
	}
	locks.of[dir] = n + 1
	if !shared {
		locks.of[dir] = -1
	}
	return func() {
		locks.Lock()
		defer locks.Unlock()
		if locks.of[dir]--; locks.of[dir] <= 0 {
			delete(locks.of, dir)
		}
	}, nil
}
