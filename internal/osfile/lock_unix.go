//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package osfile

import (
	"io"
	"os"
	"syscall"
)

// lock locks the folder itself, which leaves no file. NFS refuses that.
func lock(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
		case nil:
			return f, nil
		case syscall.EINTR:
			continue
		case syscall.EWOULDBLOCK:
			f.Close()
			return nil, ErrLocked
		default:
			f.Close()
			return nil, err
		}
	}
}
