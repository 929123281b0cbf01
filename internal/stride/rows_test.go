//go:build linux || darwin

package stride

import (
	"bytes"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime/debug"
	"syscall"
	"testing"

	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// fenced returns some pages of memory between two inaccessible pages.
func fenced(t *testing.T, pages int) []byte {
	page := os.Getpagesize()
	size := pages * page
	b, err := syscall.Mmap(-1, 0, size+2*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(b)) })
	require.NoError(t, syscall.Mprotect(b[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(b[page+size:], syscall.PROT_NONE))
	return b[page : page+size : page+size]
}

// TestRows copies rows of all sizes that copyRows accepts, and of some other sizes: first from the
// start of src to the end of dst, then from the end to the start. Any access beyond src or dst is a
// fault.
func TestRows(t *testing.T) {
	src, dst := fenced(t, 8), fenced(t, 8)
	for i := range src {
		src[i] = byte(i*7 ^ i>>8*31)
	}
	Line(nil, nil, 512, near, 0)
	random := rand.New(rand.NewPCG(1, 2))
	for run := 60; run <= longest+10; run++ {
		stride := near - 10 + random.IntN(near)
		stride = max(stride, run)
		n := 1 + random.IntN(min((len(src)-run)/stride+1, len(dst)/run))
		span, size := (n-1)*stride+run, n*run
		for range 2 {
			from, to := src[:span], dst[len(dst)-size:]
			if random.IntN(2) == 0 {
				from, to = src[len(src)-span:], dst[:size]
			}
			clear(dst)
			Line(to, from, run, stride, n)
			require.True(t, string(naive(from, int64(run), []Loop{{int64(n), int64(stride)}}, 0, int64(n))) == string(to),
				"%d rows of %d bytes, %d apart", n, run, stride)
			require.Equal(t, size, len(dst)-bytes.Count(dst, []byte{0})+bytes.Count(to, []byte{0}), "bytes outside of the rows")
		}
	}
}

// TestTiles transposes matrices of all sizes around those of a square, first with a result that
// ends where memory ends, and then with one that starts where memory starts. Any access beyond
// memory is a fault.
func TestTiles(t *testing.T) {
	src, dst := fenced(t, 8), fenced(t, 8)
	for i := range src {
		src[i] = byte(i*7 ^ i>>8*31)
	}
	for _, run := range []int{1, 2, 4, 8} {
		for rows := 1; rows <= 35; rows++ {
			for columns := 1; columns <= 35; columns++ {
				size := rows * columns * run
				loops := []Loop{{int64(columns), int64(run)}, {int64(rows), int64(columns * run)}}
				for _, from := range [][]byte{src[:size], src[len(src)-size:]} {
					want := naive(from, int64(run), loops, 0, int64(rows*columns))
					for _, to := range [][]byte{dst[:size], dst[len(dst)-size:]} {
						clear(dst)
						Gather(to, from, int64(run), loops, 0)
						require.True(t, string(want) == string(to), "%d rows of %d runs of %d bytes", rows, columns, run)
						require.Equal(t, bytes.Count(dst, []byte{0}), len(dst)-size+bytes.Count(to, []byte{0}), "bytes outside of the result")
					}
				}
			}
		}
	}
}

// TestLarge transposes matrices that are so large that their columns are written past the caches,
// and others whose columns start between two cache lines. The result ends where memory ends or
// starts where memory starts.
func TestLarge(t *testing.T) {
	memory := fenced(t, (large+large/8)/os.Getpagesize())
	for _, run := range []int{1, 2, 4, 8} {
		for _, rows := range []int{1024, 1024 + 64, 1024 + 192, 1000} {
			columns := large/rows/run + 5
			src := make([]byte, rows*columns*run)
			random := rand.NewChaCha8([32]byte{byte(run)})
			random.Read(src)
			want := make([]byte, len(src))
			for j := range columns {
				Line(want[j*rows*run:], src[j*run:], run, columns*run, rows)
			}
			for _, at := range []int{0, 16, len(memory) - len(src)} {
				clear(memory)
				to := memory[at:][:len(src)]
				Gather(to, src, int64(run), []Loop{{int64(columns), int64(run)}, {int64(rows), int64(columns * run)}}, 0)
				require.True(t, string(want) == string(to), "%d rows of %d runs of %d bytes, from byte %d on", rows, columns, run, at)
				require.Equal(t, len(memory)-len(to)+bytes.Count(to, []byte{0}), bytes.Count(memory, []byte{0}), "bytes outside of the result")
			}
		}
	}
}

// TestLostPage: a fault within copyRows, such as one in a mapped file that was truncated, is a
// panic whose value has the address.
func TestLostPage(t *testing.T) {
	testplatform.NeedTruncation(t)
	src, dst := fenced(t, 4), make([]byte, 1<<20)
	page := os.Getpagesize()
	require.NoError(t, syscall.Mprotect(src[2*page:], syscall.PROT_NONE))
	t.Cleanup(func() { require.NoError(t, syscall.Mprotect(src[2*page:], syscall.PROT_READ)) })
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	lost := func() (addr uintptr) {
		defer func() { addr = recover().(interface{ Addr() uintptr }).Addr() }()
		Line(dst, src, 512, near, 2*page/near+1)
		return 0
	}()
	require.Equal(t, reflect.ValueOf(&src[2*page]).Pointer(), lost&^uintptr(page-1))
}
