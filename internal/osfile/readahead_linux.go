package osfile

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReadAhead starts reading n bytes of f, from off on, into the page cache, and does not
// wait for the disk. Goroutines that read large blocks of one file need it: the kernel keeps
// one readahead state per open file, and they overwrite it. If the last byte is cached,
// ReadAhead assumes that all bytes are: checking each page would cost a tenth of the time
// of copying them.
func ReadAhead(f *os.File, off, n int64) {
	const piece = 128 << 10   // some file systems read no more per call
	c, err := f.SyscallConn() // Fd could make a caller's file blocking
	if err != nil {
		return
	}
	c.Control(func(fd uintptr) {
		if n > 0 && cached(int(fd), off+n-1) {
			return
		}
		for ; n > 0; off, n = off+piece, n-piece {
			if unix.Fadvise(int(fd), off, min(n, piece), unix.FADV_WILLNEED) != nil {
				return
			}
		}
	})
}

// Cached reports whether a byte of f is in the page cache: false where that cannot be told.
func Cached(f *os.File, off int64) (in bool) {
	if c, err := f.SyscallConn(); err == nil {
		c.Control(func(fd uintptr) { in = cached(int(fd), off) })
	}
	return in
}

// cached reports whether a byte of a file can be read without waiting for the disk: false
// where that cannot be told.
func cached(fd int, off int64) bool {
	if strconv.IntSize == 32 { // early versions of x/sys pass another offset there
		return false
	}
	n, err := unix.Preadv2(fd, [][]byte{make([]byte, 1)}, off, unix.RWF_NOWAIT)
	return n == 1 && err == nil
}
