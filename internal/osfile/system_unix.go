//go:build unix

package osfile

import (
	"io/fs"
	"syscall"
)

// noWait lets the opening of a named pipe return at once. It has no effect on regular files.
const noWait = syscall.O_NONBLOCK

// retryInterrupted calls f until no signal interrupts it, as package os does for its own calls: the
// runtime sends signals to preempt goroutines.
func retryInterrupted(f func() error) error {
	for {
		if err := f(); err != syscall.EINTR {
			return err
		}
	}
}

// chown gives f the owner and the group of old, if they differ from now. Only root may change the
// owner; other users may choose among their groups. If the system refuses a change, the present
// owner or group stays.
func chown(f File, now, old fs.FileInfo) {
	want, ok := old.Sys().(*syscall.Stat_t)
	have, same := now.Sys().(*syscall.Stat_t)
	if ok && same && (want.Uid != have.Uid || want.Gid != have.Gid) {
		if f.Chown(int(want.Uid), int(want.Gid)) != nil {
			f.Chown(-1, int(want.Gid))
		}
	}
}
