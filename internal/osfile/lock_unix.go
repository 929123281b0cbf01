//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package osfile

import (
	"os"
	"syscall"
)

// Lock locks the folder itself, which leaves no file. NFS refuses that.
func (osSystem) Lock(dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = retryInterrupted(func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) })
	if err == nil {
		return func() {
			syscall.Flock(int(f.Fd()), syscall.LOCK_UN) // a forked child holds f until it execs
			f.Close()
		}, nil
	}
	f.Close()
	if err == syscall.EWOULDBLOCK {
		err = ErrLocked
	}
	return nil, err
}
