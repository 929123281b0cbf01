package mem

import (
	"os"

	"golang.org/x/sys/unix"
)

// Populate faults in the pages of a mapping with one system call. Without it, the first touch of
// each page is a fault, which blocks a thread on which Go can run nothing else in the meantime.
// Populate does nothing if the kernel does not have the call, which came with Linux 5.14, or if the
// file is truncated: touching the page then shows what is wrong.
func Populate(mapping []byte) {
	if len(mapping) >= PopulateFrom {
		unix.Madvise(wholePages(mapping), unix.MADV_POPULATE_READ)
	}
}

func init() { container = func() int64 { return cgroupLimit(os.DirFS("/")) } }

// Release removes the pages of a mapping from this process. The file stays cached, and its
// pages are faulted in again when they are touched.
func Release(mapping []byte) { unix.Madvise(wholePages(mapping), unix.MADV_DONTNEED) }

// physical returns the size of memory and swap space in bytes, or 0 if it is unknown. With its
// usual setting the kernel refuses an allocation above that.
func physical() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return (int64(info.Totalram) + int64(info.Totalswap)) * int64(info.Unit) // each has 32 bits on a 32-bit system
}

// faultHuge faults in b, which must have the size and the alignment of a huge page. The system uses
// a huge page if one is free, otherwise small pages. faultHuge returns false if the system does not
// support the request.
func faultHuge(b []byte) bool {
	if unix.Madvise(b, unix.MADV_HUGEPAGE) != nil {
		return false
	}
	clear(b[:1])
	return true
}

// wholePages returns the part of b that consists of whole pages. It is empty if there are none.
func wholePages(b []byte) []byte {
	size := os.Getpagesize()
	skip := int(-Address(b) & uintptr(size-1))
	b = b[min(skip, len(b)):]
	return b[:len(b)&^(size-1)]
}
