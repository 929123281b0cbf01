package checkpoint_test

import (
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// A zeroFS has files whose content is followed by size zeros, and counts the bytes that are read.
type zeroFS struct {
	fstest.MapFS
	size int64
	read *atomic.Int64
}

type zeroFile struct {
	fs.File
	fs.FileInfo
	head string
	size int64
	read *atomic.Int64
}

func (z zeroFS) Open(name string) (fs.File, error) {
	f, err := z.MapFS.Open(name)
	if err != nil || !strings.HasSuffix(name, ".safetensors") {
		return f, err
	}
	info, err := f.Stat()
	return zeroFile{f, info, string(z.MapFS[name].Data), z.size, z.read}, err
}

func (f zeroFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f zeroFile) Size() int64                { return int64(len(f.head)) + f.size }

func (f zeroFile) ReadAt(p []byte, off int64) (n int, err error) {
	if left := f.Size() - off; int64(len(p)) > left {
		p, err = p[:max(left, 0)], io.EOF
	}
	clear(p)
	f.read.Add(int64(len(p)))
	if off < int64(len(f.head)) {
		copy(p, f.head[off:])
	}
	return len(p), err
}

// TestCopiesInConstantMemory: Check compares the data of two copies of a tensor without holding either.
func TestCopiesInConstantMemory(t *testing.T) {
	const size = 128 << 20
	h := &safetensors.Header{Tensors: []safetensors.TensorInfo{{Name: "x", DType: safetensors.U8, Shape: []int{size}}}}
	head, err := h.AppendBinary(nil)
	require.NoError(t, err)
	fsys := zeroFS{fstest.MapFS{"model.safetensors.index.json": {Data: []byte(index(t, map[string]string{"x": "model-00001-of-00002.safetensors"}))}}, size, new(atomic.Int64)}
	for _, name := range []string{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"} {
		fsys.MapFS[name] = &fstest.MapFile{Data: head}
	}
	var found []checkpoint.Finding
	memory := testplatform.Allocated(func() { found, err = checkpoint.Check(fsys, ".") })
	require.NoError(t, err)
	require.Empty(t, found, "the copies are equal")
	require.GreaterOrEqual(t, fsys.read.Load(), int64(2*size))
	require.Less(t, memory, uint64(32<<20))
}

// A heapFS notes how much of the heap is in use whenever a file with weights is opened.
type heapFS struct {
	fstest.MapFS
	used map[string]uint64
}

func (h heapFS) Open(name string) (fs.File, error) {
	if strings.HasSuffix(name, ".safetensors") {
		runtime.GC()
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		h.used[name] = max(h.used[name], now.HeapAlloc)
	}
	return h.MapFS.Open(name)
}

// TestHeadersOfOneDirectory: Check does not keep the headers of the directories that it has judged.
func TestHeadersOfOneDirectory(t *testing.T) {
	const dirs, tensors, length = 6, 2000, 2000 // a header has 4 MB
	fsys := heapFS{fstest.MapFS{}, make(map[string]uint64)}
	var names []string
	for i := range dirs {
		h := new(safetensors.Header)
		for j := range tensors {
			name := fmt.Sprintf("%d.%d.%s", i, j, strings.Repeat("x", length))
			h.Tensors = append(h.Tensors, safetensors.TensorInfo{Name: name, DType: safetensors.U8, Shape: []int{0}})
		}
		data, err := h.AppendBinary(nil)
		require.NoError(t, err)
		names = append(names, fmt.Sprintf("%d/model.safetensors", i))
		fsys.MapFS[names[i]] = &fstest.MapFile{Data: data}
	}
	found, err := checkpoint.Check(fsys, ".")
	require.NoError(t, err)
	require.Empty(t, found)
	require.Len(t, fsys.used, dirs)
	require.Less(t, fsys.used[names[dirs-1]], fsys.used[names[1]]+tensors*length, "the headers of %d directories are kept", dirs)
}
