package osfile

import (
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openUnnamed opens a new file in a folder that has no name: it is gone when it is
// closed, or its process ends, unless link has given it one.
func openUnnamed(dir string, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(dir, os.O_RDWR|unix.O_TMPFILE, mode)
}

// link gives a file of openUnnamed its name. Through /proc it needs no privilege.
func link(f *os.File, name string) error {
	path := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	err := retryInterrupted(func() error {
		return unix.Linkat(unix.AT_FDCWD, path, unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
	})
	if err != nil {
		return &os.PathError{Op: "link", Path: name, Err: err}
	}
	return nil
}

// kept reports whether the file system is known to keep what is flushed of a file
// without a name, should it get one. btrfs, for one, flushes its data but not where that
// is.
func kept(f *os.File) bool {
	var s unix.Statfs_t
	if retryInterrupted(func() error { return unix.Fstatfs(int(f.Fd()), &s) }) != nil {
		return false
	}
	switch int64(s.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
		return true
	}
	return false
}
