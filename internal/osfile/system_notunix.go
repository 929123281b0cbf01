//go:build !unix

package osfile

import "io/fs"

const noWait = 0 // this system has no named pipes in its folders

// chown does nothing, because owners are not numbers on this system.
func chown(File, fs.FileInfo, fs.FileInfo) {}
