package osfile

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// On tmpfs, Allocate only compares size with the free space: the pages of a tmpfs are memory, and
// allocating them before they are written adds a second pass over all of them. WriteFile of 1 GiB
// takes 424 ms there without the allocation, and 458 ms with it.
func (f osFile) Allocate(size int64) error {
	if s, err := f.fileSystem(); err == nil && s.Type == unix.TMPFS_MAGIC {
		if s.Blocks > 0 && uint64(size) > s.Bavail*uint64(s.Bsize) { // a tmpfs without a limit reports 0 blocks
			return &os.PathError{Op: "fallocate", Path: f.Name(), Err: unix.ENOSPC}
		}
		return f.Truncate(size)
	}
	err := retryInterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	if err != nil {
		return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
	}
	return nil
}

// fileSystem returns the description that Linux gives of the file system of the file.
func (f osFile) fileSystem() (s unix.Statfs_t, err error) {
	err = retryInterrupted(func() error { return unix.Fstatfs(int(f.Fd()), &s) })
	return s, err
}

// StartWriteback lets the kernel flush bytes while the next ones are copied, so that the sync at
// the end does not take long: a durable file of 1 GiB took 0.39 s with it and 0.62 s without.
// Errors are ignored, because that sync also returns them.
func (f osFile) StartWriteback(off, n int64) {
	unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

// CreateUnnamed opens a file without a name. It is deleted when it is closed, or when its process
// ends, unless Link has given it a name.
func (osSystem) CreateUnnamed(dir string, mode fs.FileMode) (File, error) {
	f, err := os.OpenFile(dir, os.O_WRONLY|unix.O_TMPFILE, mode)
	return osFile{f}, err
}

// Link uses a path in /proc, which needs no privilege.
func (f osFile) Link(name string) error {
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	err := retryInterrupted(func() error {
		return unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	})
	if err != nil {
		return &os.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

// Kept recognizes some file systems that keep the data. btrfs, in contrast, flushes the data but
// not its location.
func (f osFile) Kept() bool {
	s, err := f.fileSystem()
	if err != nil {
		return false
	}
	switch int64(s.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}

// ReadAhead starts reading n bytes of f, from off on, into the page cache, without waiting for the
// disk. Goroutines that read large blocks of one file need it: the kernel has one readahead state
// for each open file, and the goroutines would overwrite it. If the last byte is cached, ReadAhead
// assumes that all bytes are, because checking each page would take a tenth of the time of copying
// them.
func ReadAhead(f *os.File, off, n int64) {
	const piece = 128 << 10   // some file systems read no more per call
	c, err := f.SyscallConn() // Fd could put the caller's file into blocking mode
	if err != nil || n > 0 && Cached(f, off+n-1) {
		return
	}
	c.Control(func(fd uintptr) {
		for ; n > 0; off, n = off+piece, n-piece {
			if unix.Fadvise(int(fd), off, min(n, piece), unix.FADV_WILLNEED) != nil {
				return
			}
		}
	})
}

// Cached reports whether a byte of f is in the page cache, and so can be read without waiting for
// the disk. It returns false if the system cannot tell.
func Cached(f *os.File, off int64) (in bool) {
	c, err := f.SyscallConn()
	if err != nil || strconv.IntSize == 32 { // early versions of x/sys pass a wrong offset on 32-bit systems
		return false
	}
	c.Control(func(fd uintptr) {
		n, err := unix.Preadv2(int(fd), [][]byte{make([]byte, 1)}, off, unix.RWF_NOWAIT)
		in = n == 1 && err == nil
	})
	return in
}
