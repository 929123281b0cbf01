//go:build !linux

package mem

// Populate does nothing: the pages are faulted in as they are touched.
func Populate([]byte) {}

// Release does nothing: the system removes pages when it needs memory.
func Release([]byte) {}

func faultHuge([]byte) bool { return false }
