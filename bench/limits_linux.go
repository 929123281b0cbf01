package bench

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the machine can do at best: the least that any contestant has to do,
// without the rest of its work.

// sink keeps results alive: what only it depends on must still be computed.
var sink atomic.Uint64

// byteSum adds all bytes, 32 at a time; reading a header cannot be cheaper.
func byteSum(b []byte) uint64 {
	var s0, s1, s2, s3 uint64
	for ; len(b) >= 32; b = b[32:] {
		s0 += binary.LittleEndian.Uint64(b)
		s1 += binary.LittleEndian.Uint64(b[8:])
		s2 += binary.LittleEndian.Uint64(b[16:])
		s3 += binary.LittleEndian.Uint64(b[24:])
	}
	for _, c := range b {
		s0 += uint64(c)
	}
	return s0 + s1 + s2 + s3
}

// headerLimits are the limits of whoever reads a header.
func headerLimits(data []byte) []*Contestant {
	header := headerOf(data)
	return []*Contestant{{
		Name: "limit: utf8.Valid",
		Does: "checks the encoding of the header, which every reader has to",
		Run: loop(func() error {
			if !utf8.Valid(header) {
				return errors.New("invalid UTF-8")
			}
			return nil
		}),
	}, {
		Name: "limit: byte sum",
		Does: "adds up the bytes of the header, 32 at a time",
		Run: loop(func() error {
			sink.Store(byteSum(header))
			return nil
		}),
	}}
}

const (
	blockSize = 16 * miB
	threads   = 8
)

// inBlocks calls do for all blocks of n bytes, threads at a time.
func inBlocks(n int64, do func(offset, length int64) error) error {
	var (
		next   atomic.Int64
		wait   sync.WaitGroup
		failed [threads]error
	)
	for i := range threads {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for failed[i] == nil {
				offset := next.Add(blockSize) - blockSize
				if offset >= n {
					return
				}
				failed[i] = do(offset, min(blockSize, n-offset))
			}
		}()
	}
	wait.Wait()
	return errors.Join(failed[:]...)
}

// readParallel fills dst from the start of a file.
func readParallel(path string, flags int, dst []byte) error {
	f, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return inBlocks(int64(len(dst)), func(offset, length int64) error {
		n, err := f.ReadAt(dst[offset:offset+length], offset)
		if err == io.EOF && n > 0 { // O_DIRECT reads whole sectors of the last block
			err = nil
		}
		return err
	})
}

// writeParallel writes src to a new file whose space is reserved first.
func writeParallel(path string, src []byte) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(len(src))); err != nil {
		return err
	}
	return inBlocks(int64(len(src)), func(offset, length int64) error {
		_, err := f.WriteAt(src[offset:offset+length], offset)
		return err
	})
}

// hugeBuffer returns n bytes of fresh memory, aligned to and backed by pages
// of 2 MiB as far as the kernel has them. They are returned by unmap.
func hugeBuffer(n int64) (memory, aligned []byte, err error) {
	const page = 2 * miB
	memory, err = unix.Mmap(-1, 0, int(n)+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, nil, err
	}
	skip := -int(uintptr(unsafe.Pointer(&memory[0]))) & (page - 1)
	aligned = memory[skip : skip+int(n)]
	return memory, aligned, errors.Join(unix.Madvise(aligned, unix.MADV_HUGEPAGE))
}
