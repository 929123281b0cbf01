package mem

import "golang.org/x/sys/unix"

// physical returns twice the size of memory, 0 if unknown. Swap space grows as it is
// needed, so that the system refuses nothing; but the tables that Go keeps of a slice
// are a thousandth of its size, however little of it is filled.
func physical() int64 {
	size, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return 2 * int64(size)
}
