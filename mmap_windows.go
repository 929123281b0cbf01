package safetensors

import (
	"os"
	"syscall"
	"unsafe"
)

// mmap maps the first size bytes of f for reading. The mapping outlives f.
func mmap(f *os.File, size int) ([]byte, error) {
	h, err := syscall.CreateFileMapping(syscall.Handle(f.Fd()), nil, syscall.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, os.NewSyscallError("CreateFileMapping", err)
	}
	defer syscall.CloseHandle(h) // the view keeps the mapping alive
	addr, err := syscall.MapViewOfFile(h, syscall.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, os.NewSyscallError("MapViewOfFile", err)
	}
	// vet warns about a direct conversion, but the address is not a Go pointer.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size), nil
}

func munmap(b []byte) error {
	err := syscall.UnmapViewOfFile(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	return os.NewSyscallError("UnmapViewOfFile", err)
}
