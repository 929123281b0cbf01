//go:build !linux

package mem

// Populate does nothing: the pages are faulted in as they are touched.
func Populate([]byte) {}

// Release does nothing: the system lets go of pages when it needs memory.
func Release([]byte) {}

// physical returns 0: the size of memory is not known here.
func physical() int64 { return 0 }

func hugePages([]byte) {}
