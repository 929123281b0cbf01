//go:build !linux && !darwin && !windows

package storage

// freeSpace returns false, because it is not implemented for this system.
func freeSpace(string) (free uint64, known bool) { return 0, false }
