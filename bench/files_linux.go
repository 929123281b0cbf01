package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sparseFile writes a file with a header and data that are a hole: enough to
// parse and to map, without the space on disk.
func sparseFile(path string, header []byte, dataSize int64) error {
	if err := os.WriteFile(path, header, 0o666); err != nil {
		return err
	}
	return os.Truncate(path, int64(len(header))+dataSize)
}

// filledFile writes a file with a header and data that are on the disk.
func filledFile(path string, header []byte, dataSize int64) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.Write(header); err != nil {
		return err
	}
	block := noise(4 * miB)
	for dataSize > 0 {
		n, err := f.Write(block[:min(dataSize, int64(len(block)))])
		if err != nil {
			return err
		}
		dataSize -= int64(n)
	}
	return f.Sync()
}

// noise returns n bytes, a multiple of 2: as 16-bit and 32-bit floats they are
// normal and below 2 in magnitude.
func noise(n int) []byte {
	random := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := 0; i < n; i += 2 {
		binary.LittleEndian.PutUint16(b[i:], uint16(random.Uint32())&^0x4000|0x0400)
	}
	return b
}

// mapFile maps a file read-only and touches its header, so that nobody pays
// for the page faults there.
func mapFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	sink.Store(byteSum(headerOf(data)))
	return data, nil
}

func unmap(data []byte) { unix.Munmap(data) }

// headerOf returns the JSON of a file.
func headerOf(data []byte) []byte {
	return data[8 : 8+binary.LittleEndian.Uint64(data)]
}

// evict drops a file from the page cache and verifies that it is gone.
func evict(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil { // dirty pages would stay
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	resident, err := cached(f)
	if err == nil && resident > 0 {
		err = fmt.Errorf("%d pages of %s are still in the page cache", resident, path)
	}
	return err
}

// cached returns how many pages of a file are in the page cache.
func cached(f *os.File) (pages int, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer unix.Munmap(data)
	resident := make([]byte, (len(data)+os.Getpagesize()-1)/os.Getpagesize())
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])),
		uintptr(len(data)), uintptr(unsafe.Pointer(&resident[0])))
	if errno != 0 {
		return 0, errno
	}
	for _, page := range resident {
		pages += int(page & 1)
	}
	return pages, nil
}

// syncFile brings a file and its name to the disk, as WriteFile does.
func syncFile(paths ...string) error {
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = errors.Join(f.Sync(), f.Close())
		if err != nil {
			return err
		}
	}
	return nil
}
