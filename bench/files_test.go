package bench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// sparseFile writes a header followed by a hole of dataSize bytes: enough to
// parse and map, without using space on disk.
func sparseFile(path string, header []byte, dataSize int64) {
	check(os.WriteFile(path, header, 0o666))
	check(os.Truncate(path, int64(len(header))+dataSize))
}

// filledFile writes a header followed by dataSize bytes of noise, and flushes
// the file.
func filledFile(path string, header []byte, dataSize int64) {
	f := must(os.Create(path))
	must(f.Write(header))
	for block := noise(4 * miB); dataSize > 0; dataSize -= int64(len(block)) {
		must(f.Write(block[:min(dataSize, int64(len(block)))]))
	}
	check(errors.Join(f.Sync(), f.Close()))
}

// noise returns n bytes of no pattern.
func noise(n int) []byte {
	b := make([]byte, n)
	must(rand.NewChaCha8([32]byte{}).Read(b))
	return b
}

// mapped returns a read-only mapping of a file.
func mapped(path string) []byte {
	f := must(os.Open(path))
	defer f.Close()
	size := must(f.Stat()).Size()
	return must(unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED))
}

// mapFile maps a file until the benchmark ends, and touches its header so that
// no contestant pays for the page faults there.
func mapFile(b *testing.B, path string) []byte {
	data := mapped(path)
	b.Cleanup(func() { unix.Munmap(data) })
	touch(headerOf(data))
	return data
}

// headerOf returns the JSON of a file.
func headerOf(data []byte) []byte {
	return data[8 : 8+binary.LittleEndian.Uint64(data)]
}

// readThrough reads a file into the page cache.
func readThrough(path string) {
	data := mapped(path)
	touch(data)
	check(unix.Munmap(data))
}

// evict drops a file from the page cache and verifies that it is gone. A page that the
// kernel is looking at stays, so a second try may be needed.
func evict(path string) {
	f := must(os.Open(path))
	defer f.Close()
	check(f.Sync()) // dirty pages would stay
	var stat unix.Cachestat_t
	for range 50 {
		check(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		check(unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &stat, 0))
		if stat.Cache == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	panic(fmt.Sprintf("%d pages of %s are still in the page cache", stat.Cache, path))
}

// inMemory reports whether a folder is on tmpfs, whose pages are the files.
func inMemory(dir string) bool {
	var stat unix.Statfs_t
	check(unix.Statfs(dir, &stat))
	return stat.Type == unix.TMPFS_MAGIC
}

// syncFile flushes a file or folder to the disk.
func syncFile(path string) {
	f := must(os.Open(path))
	check(errors.Join(f.Sync(), f.Close()))
}

// sink keeps results alive that nothing else uses.
var sink atomic.Uint64

// touch reads a byte of every page.
func touch(b []byte) {
	var sum uint64
	for i := 0; i < len(b); i += 4 * kiB {
		sum += uint64(b[i])
	}
	sink.Store(sum)
}

// memmove copies n bytes from one piece of memory to another.
func (w work) memmove(n, threads int) func(*testing.B) {
	return func(b *testing.B) {
		dst, src := make([]byte, n), noise(n)
		w.measure(b, func() { inParts(threads, dst, src, func(dst, src []byte) { copy(dst, src) }) })
	}
}

// parallel calls do(0), do(1), … do(n-1) in several threads.
func parallel(threads, n int, do func(i int)) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range threads {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				do(i)
			}
		}()
	}
	wait.Wait()
}

// inParts calls f for as many equal parts of dst and src as there are threads.
func inParts[D, S any](threads int, dst []D, src []S, f func(dst []D, src []S)) {
	d, s := len(dst)/threads, len(src)/threads
	parallel(threads, threads, func(i int) { f(dst[i*d:(i+1)*d], src[i*s:(i+1)*s]) })
}

// inBlocks calls do for blocks of 16 MiB of b, in 8 threads.
func inBlocks(b []byte, do func(block []byte, offset int64) (int, error)) {
	const size = 16 * miB
	parallel(8, (len(b)+size-1)/size, func(i int) {
		must(do(b[i*size:min((i+1)*size, len(b))], int64(i*size)))
	})
}
