package osfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestInterruptedCalls: a signal, which may come from the runtime, does not end a call. Any other
// error does.
func TestInterruptedCalls(t *testing.T) {
	for _, last := range []error{nil, unix.ENOSPC} {
		calls := 0
		err := retryInterrupted(func() error {
			if calls++; calls < 4 {
				return unix.EINTR
			}
			return last
		})
		require.Equal(t, last, err)
		require.Equal(t, 4, calls)
	}
}

// TestAllocateInMemory: tmpfs gives a file its size without any page, and refuses more than it has
// room for.
func TestAllocateInMemory(t *testing.T) {
	dir := must(os.MkdirTemp("/dev/shm", ""))
	defer os.RemoveAll(dir)
	var before unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &before))
	if before.Type != unix.TMPFS_MAGIC || before.Blocks == 0 {
		t.Skip("/dev/shm is not a tmpfs with a limit")
	}
	f := osFile{must(os.Create(filepath.Join(dir, "file")))}
	defer f.Close()
	require.NoError(t, f.Allocate(1<<20))
	var s unix.Stat_t
	require.NoError(t, unix.Fstat(int(f.Fd()), &s))
	require.Equal(t, int64(1<<20), s.Size)
	require.Zero(t, s.Blocks)
	require.ErrorIs(t, f.Allocate(int64(before.Blocks+1)*int64(before.Bsize)), unix.ENOSPC)
	require.NoError(t, unix.Fstat(int(f.Fd()), &s))
	require.Equal(t, int64(1<<20), s.Size)
}

// TestUnlockWithChild: a child process holds the files of its parent until it executes its program.
// Even so, it does not keep the lock.
func TestUnlockWithChild(t *testing.T) {
	dir := must(filepath.EvalSymlinks(t.TempDir()))
	unlock := must(system.Lock(dir))
	_, err := system.Lock(dir)
	require.Equal(t, ErrLocked, err)
	files := must(os.ReadDir("/proc/self/fd"))
	i := slices.IndexFunc(files, func(e os.DirEntry) bool {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		return err == nil && to == dir
	})
	inherited := must(unix.Dup(must(strconv.Atoi(files[i].Name()))))
	defer unix.Close(inherited)
	unlock()
	unlock, err = system.Lock(dir)
	require.NoError(t, err)
	unlock()
}

// TestReadAhead: bytes that are not in the page cache are read from the disk completely, and bytes
// that are cached are not read again.
func TestReadAhead(t *testing.T) {
	const size = 8 << 20
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, make([]byte, size), 0o600))
	f := must(os.Open(name))
	defer f.Close()
	var fs unix.Statfs_t
	require.NoError(t, unix.Fstatfs(int(f.Fd()), &fs))
	if fs.Type != unix.EXT4_SUPER_MAGIC && fs.Type != unix.XFS_SUPER_MAGIC {
		t.Skip("this file system may not count what is read, or compress it, or have a cache of its own")
	}
	require.NoError(t, f.Sync())
	require.NoError(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))

	ahead := func(off, n int64) int64 {
		before := bytesRead(t)
		ReadAhead(f, off, n)
		return bytesRead(t) - before
	}
	const half = size / 2
	got := ahead(0, half)
	require.GreaterOrEqual(t, got, int64(half))
	require.Less(t, got, int64(size))
	require.GreaterOrEqual(t, ahead(half, half+1)+got, int64(size))
	must(f.ReadAt(make([]byte, size), 0))
	require.Less(t, ahead(0, size), int64(half)) // some of the bytes may be pages of the program
	require.Less(t, ahead(0, 0), int64(half))
	require.False(t, Cached(f, size), "the end")
	n, err := unix.Preadv2(int(f.Fd()), [][]byte{make([]byte, 1)}, 0, unix.RWF_NOWAIT)
	if strconv.IntSize == 64 && n == 1 && err == nil { // emulators do not support the call
		require.True(t, Cached(f, size-1))
	}
}

// bytesRead returns the number of bytes that this process has requested from disks.
func bytesRead(t *testing.T) (n int64) {
	text := must(os.ReadFile("/proc/self/io"))
	_, after, _ := strings.Cut(string(text), "\nread_bytes: ")
	must(fmt.Sscan(after, &n))
	return n
}
