package mem

import "golang.org/x/sys/unix"

// physical returns twice the size of memory in bytes, or 0 if it is unknown. Swap space grows
// as it is needed, so that the system refuses no allocation. A limit is needed anyway, because
// the tables that Go keeps for a slice take a thousandth of its size, even if it is never filled.
func physical() int64 {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return 2 * int64(size)
}
