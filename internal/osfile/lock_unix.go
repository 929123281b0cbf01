//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package osfile

import (
	"os"
	"syscall"
)

// lockDir locks the folder itself, so that there is no file to remove. NFS does not support that.
func lockDir(dir string, shared bool) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	how := syscall.LOCK_EX | syscall.LOCK_NB
	if shared {
		how = syscall.LOCK_SH | syscall.LOCK_NB
	}
	err = retryInterrupted(func() error { return syscall.Flock(int(f.Fd()), how) })
	if err == nil {
		return func() {
			syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // a forked child holds f until it executes another program
			f.Close()
		}, nil
	}
	f.Close()
	if err == syscall.EWOULDBLOCK {
		err = ErrLocked
	}
	return nil, err
}
