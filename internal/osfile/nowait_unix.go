//go:build unix

package osfile

import "syscall"

// noWait has the opening of a named pipe return at once. It changes nothing of regular
// files.
const noWait = syscall.O_NONBLOCK
