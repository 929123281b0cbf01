package apitest_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// resident returns the bytes of memory of a kind that this process has: RssFile, of
// files, RssShmem, of files on tmpfs, or RssAnon.
func resident(t testing.TB, kind string) int64 {
	t.Helper()
	_, rest, found := strings.Cut(string(must(os.ReadFile("/proc/self/status"))), kind+":")
	require.True(t, found)
	var kB int64
	must(fmt.Sscan(rest, &kB))
	return kB << 10
}

// sparseModel writes a file of one BF16 tensor of that many bytes, all zero, and
// opens it with open.
func sparseModel(t *testing.T, size int, open func(name string) (*File, error)) Tensor {
	t.Helper()
	name := filepath.Join(t.TempDir(), "model.safetensors")
	head := fileOf(fmt.Sprintf(`{"x":{"dtype":"BF16","shape":[%d],"data_offsets":[0,%d]}}`, size/2, size), 0)
	require.NoError(t, os.WriteFile(name, head, 0o666))
	require.NoError(t, os.Truncate(name, int64(len(head)+size)))
	f := must(open(name))
	t.Cleanup(func() { f.Close() })
	return must(f.Tensor("x"))
}

// TestCopiesLeaveNoPagesResident: copies from a mapped file do not make the process
// larger by the file. A view of it does, which shows that the test would notice.
func TestCopiesLeaveNoPagesResident(t *testing.T) {
	size := 64 << 20
	if testing.Short() {
		size = 32 << 20 // hashing is slow in an emulator
	}
	x := sparseModel(t, size, Open)
	converted := must(x.Convert(F16))
	mapped := func() int64 { return resident(t, "RssFile") + resident(t, "RssShmem") }
	before := mapped()
	for way, read := range readings(t.TempDir()) {
		for _, y := range []Tensor{x, converted} {
			must(read(y))
			require.Less(t, mapped()-before, int64(size/4), "%s of %v", way, y)
		}
	}
	must(Append[float32](nil, x))
	require.Less(t, mapped()-before, int64(size/4), "Append, converted")
	view := must(View[byte](x))
	for i := 0; i < len(view); i += 4096 {
		require.Zero(t, view[i])
	}
	require.Greater(t, mapped()-before, int64(size*3/4), "a view keeps what it touches")
}

// TestConvertingWritesAreSmall: a conversion on the way from a file to a writer takes
// some blocks of 1 MiB, whatever the size of the tensor.
func TestConvertingWritesAreSmall(t *testing.T) {
	if testplatform.RaceEnabled {
		t.Skip("the race detector needs memory that the test would count")
	}
	size := 256 << 20
	if testing.Short() {
		size = 96 << 20
	}
	x := sparseModel(t, size, func(name string) (*File, error) {
		file := must(os.Open(name))
		t.Cleanup(func() { file.Close() })
		return NewFile(file, must(file.Stat()).Size())
	})
	converted := must(x.Convert(F32))
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // or pools are emptied in the middle
	debug.FreeOSMemory()
	debug.FreeOSMemory() // what pools still had
	before, most := resident(t, "RssAnon"), int64(0)
	must(converted.WriteTo(writerFunc(func(b []byte) (int, error) {
		most = max(most, resident(t, "RssAnon"))
		return len(b), nil
	})))
	require.Less(t, most-before, int64(64<<20))
}

// TestComputedWritesAreSmall writes 48 computed tensors, rounded from float32 to BF16, and
// compares the most memory that the process has meanwhile with that of twelve, more than are
// computed ahead on any number of processors: results are reused, not collected. The long
// test has the size, and the limit, of the promise.
func TestComputedWritesAreSmall(t *testing.T) {
	if testplatform.RaceEnabled {
		t.Skip("the race detector needs memory that the test would count")
	}
	size := 16 << 20
	if testplatform.Long() {
		size = 64 << 20
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for way, write := range map[string]func(map[string]Tensor) error{
		"Write":     func(tensors map[string]Tensor) error { return Write(io.Discard, tensors, nil) },
		"WriteFile": func(tensors map[string]Tensor) error { return WriteFile(filepath.Join(t.TempDir(), "x"), tensors, nil) },
	} {
		peak := func(n int) (most int64) {
			debug.FreeOSMemory()
			var mu sync.Mutex
			calls, tensors := 0, make(map[string]Tensor)
			for i := range n {
				tensors[fmt.Sprint(i)] = must(NewTensorFunc(BF16, []int{size / 2}, func(dst []float32) error {
					for k := range dst {
						dst[k] = float32(i)
					}
					mu.Lock()
					defer mu.Unlock()
					calls++
					most = max(most, resident(t, "RssAnon"))
					return nil
				}))
			}
			require.NoError(t, write(tensors))
			require.Equal(t, n, calls)
			return most
		}
		few, many := peak(12), peak(48)
		t.Logf("%s: 48 tensors of %d MB: %d MB resident, 12: %d MB", way, size>>20, many>>20, few>>20)
		require.Less(t, many-few, int64(4*2*size), "%s: more than four results more", way)
		if size == 64<<20 {
			require.Less(t, many, int64(600e6), way)
		}
	}
}
