package mem

import (
	"math"
	"syscall"
	"unsafe"
)

var globalMemoryStatusEx = syscall.NewLazyDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

// memoryStatus is MEMORYSTATUSEX.
type memoryStatus struct {
	length, load                 uint32
	totalPhysical, availPhysical uint64
	totalPageFile, availPageFile uint64 // these include physical memory
	totalVirtual, availVirtual   uint64
	availExtendedVirtual         uint64
}

// physical returns the number of bytes that this process may still commit, or 0 if it is unknown.
// Go commits the memory of a large slice at once, and the program ends if the
// system refuses it.
func physical() int64 {
	status := memoryStatus{length: uint32(unsafe.Sizeof(memoryStatus{}))}
	if ok, _, _ := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return 0
	}
	return int64(min(status.availPageFile, status.availVirtual, math.MaxInt64))
}
