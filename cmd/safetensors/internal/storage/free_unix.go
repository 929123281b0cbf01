//go:build linux || darwin

package storage

import "golang.org/x/sys/unix"

// freeSpace returns how many bytes a user may still write to the file system of a folder.
func freeSpace(dir string) (free uint64, known bool) {
	var s unix.Statfs_t
	if unix.Statfs(dir, &s) != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}
