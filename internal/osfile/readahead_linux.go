package osfile

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// ReadAhead asks the kernel to read n bytes of f, from off on, into the page cache, and
// returns while the disk works. Goroutines that read large blocks of one file need it: the
// kernel has a single state of its own reading ahead for an open file, which they take from
// one another. If the last byte is in the cache, the others are taken to be, too: looking
// for each page would cost a tenth of the time of copying them.
func ReadAhead(f *os.File, off, n int64) {
	const piece = 128 << 10   // the most that the kernel reads for one call on some file systems
	c, err := f.SyscallConn() // Fd would change how files of the caller work
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

// cached reports whether a byte of a file can be read without waiting for the disk: false
// where that cannot be told.
func cached(fd int, off int64) bool {
	if strconv.IntSize == 32 { // early versions of x/sys pass another offset there
		return false
	}
	n, err := unix.Preadv2(fd, [][]byte{make([]byte, 1)}, off, unix.RWF_NOWAIT)
	return n == 1 && err == nil
}
