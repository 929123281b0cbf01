package safetensors

import (
	"os"
	"reflect"

	"golang.org/x/sys/unix"
)

// populate brings the pages of a mapping in by a system call. Touched cold, each
// would be a page fault, and Go cannot run anything else on the thread during
// one. Where the kernel knows no such call, or the file is truncated, nothing
// happens, and touching the page shows what is the matter.
func populate(mem []byte) {
	const worthwhile = 64 << 10
	if len(mem) < worthwhile {
		return
	}
	if pages := aligned(mem, os.Getpagesize()); len(pages) > 0 {
		unix.Madvise(pages, unix.MADV_POPULATE_READ) // from Linux 5.14 on
	}
}

// aligned returns the part of mem that begins and ends at multiples of size, a
// power of two; it is empty if there is none.
func aligned(mem []byte, size int) []byte {
	skip := int(-reflect.ValueOf(mem).Pointer() & uintptr(size-1))
	if skip >= len(mem) {
		return nil
	}
	mem = mem[skip:]
	return mem[:len(mem)&^(size-1)]
}

// reserveSpace makes f size bytes long and reserves the space on the disk, so that a
// full one shows before anything is written.
func reserveSpace(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	err := retryInterrupted(func() error { return unix.Fallocate(int(f.Fd()), 0, 0, size) })
	switch err {
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EINVAL, unix.EPERM:
		return f.Truncate(size)
	case nil:
		return nil
	}
	return &os.PathError{Op: "fallocate", Path: f.Name(), Err: err}
}

// startWriteback has the kernel begin to bring a range of f to the disk, so that
// it does while the next ranges are copied, and the sync at the end finds little
// left to wait for: a durable file of 1 GiB took 0.39 s with it, 0.62 s without.
func startWriteback(f *os.File, off, n int64) {
	unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE)
}

func retryInterrupted(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}

// hugePages asks for large pages behind fresh memory that is about to be filled:
// page faults are most of the cost of filling it.
func hugePages(mem []byte) {
	const hugePage = 2 << 20
	if pages := aligned(mem, hugePage); len(pages) > 0 {
		unix.Madvise(pages, unix.MADV_HUGEPAGE)
	}
}
