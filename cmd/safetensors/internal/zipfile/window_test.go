package zipfile

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// content returns bytes that compress little, as random as they can be then.
func content(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	for i := range b {
		b[i] &= 0x1f
	}
	return b
}

// TestWindow reads a compressed member in every order, from several goroutines.
func TestWindow(t *testing.T) {
	for name, size := range map[string]int{"small": 1000, "larger than the window": 2_012_345} {
		t.Run(name, func(t *testing.T) {
			want := content(size)
			a, err := open(archive(t, deflated(t, "a", string(want))))
			require.NoError(t, err)
			a.limits = limits{window: 600_000, unpack: 50_000}
			r := a.Member("a").Content().R
			random := rand.New(rand.NewPCG(1, 2))
			for range 10 {
				off := random.IntN(size)
				p := make([]byte, random.IntN(size/5))
				n, err := r.ReadAt(p, int64(off))
				require.True(t, bytes.Equal(want[off:min(off+len(p), size)], p[:n]))
				require.Equal(t, off+len(p) > size, err == io.EOF)
			}
			n, err := r.ReadAt(make([]byte, 1), int64(size))
			require.Zero(t, n)
			require.Equal(t, io.EOF, err)

			got := make([]byte, size) // blocks in a random order, concurrently
			block := size/40 + 1
			blocks := random.Perm(40)
			var wait sync.WaitGroup
			for k := range 8 {
				wait.Add(1)
				go func() {
					defer wait.Done()
					for i := k; i < len(blocks); i += 8 {
						begin := min(size, blocks[i]*block)
						p := got[begin:min(size, begin+block)]
						if n, err := r.ReadAt(p, int64(begin)); n < len(p) {
							t.Error(n, err)
						}
					}
				}()
			}
			wait.Wait()
			require.True(t, bytes.Equal(want, got))
		})
	}
}

// counted counts how often the first byte of a file is read.
type counted struct {
	io.ReaderAt
	mu    sync.Mutex
	first int64 // byte of the content
	times int
}

func (c *counted) ReadAt(p []byte, off int64) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if off <= c.first && c.first < off+int64(len(p)) {
		c.times++
	}
	return c.ReaderAt.ReadAt(p, off)
}

// TestWindowInOrder: concurrent reads of adjacent blocks unpack a member once, in
// memory that does not depend on its size.
func TestWindowInOrder(t *testing.T) {
	const size = 256 << 20
	data := zeros(t, size)
	file := &counted{ReaderAt: bytes.NewReader(data), first: 31}
	a, err := Open(file, int64(len(data)))
	require.NoError(t, err)
	file.times = 0
	r := a.Member("a").Content().R
	before := allocated()
	buffers := make([]byte, 16<<20)
	for begin := int64(0); begin < size; begin += int64(len(buffers)) {
		var wait sync.WaitGroup
		for at := int64(0); at < int64(len(buffers)); at += 1 << 20 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				n, err := r.ReadAt(buffers[at:][:1<<20], begin+at)
				if n < 1<<20 {
					t.Error(n, err)
				}
			}()
		}
		wait.Wait() // a read that falls behind by a window would start another one
	}
	require.Less(t, allocated()-before, uint64(16<<20+2*usual.window+4<<20))
	require.LessOrEqual(t, file.times, 2)
}

// TestWindowsMemory: the windows of many members are closed again.
func TestWindowsMemory(t *testing.T) {
	var members []raw
	const size = 1 << 20
	text := string(content(size))
	for i := range 12 {
		m := deflated(t, string(rune('a'+i)), text)
		members = append(members, m)
	}
	a, err := open(archive(t, members...))
	require.NoError(t, err)
	a.limits = limits{window: size, windows: 8 * size, unpack: size}
	for _, m := range a.Members {
		_, err := m.Content().R.ReadAt(make([]byte, 10), 10)
		require.NoError(t, err)
	}
	open := 0
	for _, m := range a.Members {
		if m.window.ring != nil {
			open++
		}
	}
	require.Equal(t, 8, open)
	for _, m := range a.Members { // those that were closed start again
		b := make([]byte, 10)
		_, err := m.Content().R.ReadAt(b, 20)
		require.NoError(t, err)
		require.Equal(t, text[20:30], string(b))
	}
}

// TestWindowLies: a member of another size, or with another checksum, is an error when
// its last byte is read, whatever was read before.
func TestWindowLies(t *testing.T) {
	long := string(content(100_000))
	for name, m := range map[string]raw{
		"shorter":   deflated(t, "a", long).with(func(m *raw) { m.UncompressedSize64++ }),
		"longer":    deflated(t, "a", long).with(func(m *raw) { m.UncompressedSize64-- }),
		"truncated": deflated(t, "a", long).with(func(m *raw) { m.CompressedSize64 -= 3; m.content = m.content[:len(m.content)-3] }),
		"checksum":  deflated(t, "a", long).with(func(m *raw) { m.CRC32++ }),
	} {
		t.Run(name, func(t *testing.T) {
			a, err := open(archive(t, m))
			require.NoError(t, err)
			src := a.Member("a").Content()
			for range 2 {
				_, err = src.R.ReadAt(make([]byte, 1), src.Size-1)
				require.ErrorContains(t, err, `zip member "a": `)
				require.NotErrorIs(t, err, io.EOF)
			}
		})
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// zeros returns an archive of a member a of zeros.
func zeros(t *testing.T, size int64) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	require.NoError(t, err)
	sum := crc32.NewIEEE()
	block := make([]byte, 1<<20)
	for range size / int64(len(block)) {
		_, err := io.MultiWriter(w, sum).Write(block)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return archive(t, raw{zip.FileHeader{
		Name: "a", Method: zip.Deflate, CRC32: sum.Sum32(), CompressedSize64: uint64(b.Len()), UncompressedSize64: uint64(size),
	}, b.String()})
}
