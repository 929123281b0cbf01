//go:build !linux

package mem

// Populate does nothing: the pages are faulted in as they are touched.
func Populate([]byte) {}

func hugePages([]byte) {}
