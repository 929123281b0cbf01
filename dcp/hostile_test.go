package dcp

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestManyFiles: a checkpoint may have more files than a process may open.
func TestManyFiles(t *testing.T) {
	const n = 300
	offset, length := entryOfOne()
	data := must(os.ReadFile("testdata/distcp/one/__0_0.distcp"))
	folder := fstest.MapFS{}
	var chunks, places []string
	for i := range n {
		name := fmt.Sprint("f", i)
		folder[name] = &fstest.MapFile{Data: data}
		chunks = append(chunks, boxOf([]int{3 * i}, []int{3}))
		places = append(places, index("w", 3*i), info(name, offset, length))
	}
	folder[metadataFile] = &fstest.MapFile{Data: []byte(metadata(dict(str("w"), tensorOf("float32", []int{3 * n}, chunks...)), dict(places...)))}
	fsys := &counted{FS: folder}
	c := must(openSkipping(fsys, "."))
	read := func() ([]float32, error) { return safetensors.Elements[float32](c.File, "w", 3*n) }
	got := must(read())
	require.Equal(t, slices.Repeat(got[:3], n), got)
	require.Less(t, fsys.most.Load(), int64(n/2))
	require.LessOrEqual(t, fsys.open.Load(), int64(maxIdle))

	_, err := OpenFS(&counted{FS: folder, plain: true}, ".")
	require.ErrorContains(t, err, "open f0: is not a file that can be read by offset")

	change := func(data []byte) {
		for i := range n { // some of the files are still open
			folder[fmt.Sprint("f", i)] = &fstest.MapFile{Data: data}
		}
	}
	change(append(data, 0))
	require.ErrorContains(t, errorOf(read()), "has changed since it was first opened")
	change(data)
	require.Equal(t, got, must(read()), "what could not be opened is opened again")
	require.NoError(t, c.Close())
	require.Zero(t, fsys.open.Load())
	require.ErrorIs(t, errorOf(read()), fs.ErrClosed)
}

// TestPickleMemory: reading a .metadata with the largest allowed number of opcodes takes at most 3
// GB, even if each opcode makes an empty dict or list.
func TestPickleMemory(t *testing.T) {
	const perOpcode, most = 2, 3_000_000_000
	n, limit := maxSteps/perOpcode, uint64(most)
	if !testplatform.Long() { // with fewer opcodes, garbage makes up a larger part of the heap
		n /= 20
		limit = limit / 20 * 3 / 2
	}
	for _, opcodes := range []string{"}", "]", "}]"} {
		fsys := fstest.MapFS{metadataFile: {Data: []byte("\x80\x02(" + strings.Repeat(opcodes, n/len(opcodes)) + "t.")}}
		var err error
		peak := peakOfHeap(func() { _, err = OpenFS(fsys, ".") })
		require.Error(t, err)
		t.Logf("%d opcodes %q: %d MB", n, opcodes, peak/1e6)
		require.Less(t, peak, limit)
	}
}

// peakOfHeap returns the largest size of the heap in bytes while f ran, according to samples.
func peakOfHeap(f func()) uint64 {
	inUse := func() uint64 {
		var now runtime.MemStats
		runtime.ReadMemStats(&now)
		return now.HeapInuse
	}
	runtime.GC()
	before, done, peak := inUse(), make(chan struct{}), make(chan uint64)
	go func() {
		most := before
		for {
			select {
			case <-done:
				peak <- max(most, inUse()) - before
				return
			case <-time.After(time.Millisecond):
				most = max(most, inUse())
			}
		}
	}()
	f()
	close(done)
	return <-peak
}

// A gated file system contains the file "f0", whose first read after the channel is set waits until
// the channel is closed. If one of its files is closed while it is read, the test fails.
type gated struct {
	fs.FS
	t       *testing.T
	gate    atomic.Pointer[chan struct{}]
	waiting chan struct{} // receives when a read waits
}

func (g *gated) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(g.FS, name) }

func (g *gated) Open(name string) (fs.File, error) {
	f, err := g.FS.Open(name)
	return &gatedFile{File: f, name: name, gated: g}, err
}

type gatedFile struct {
	fs.File
	*gated
	name    string
	readers atomic.Int64
}

func (f *gatedFile) ReadAt(p []byte, off int64) (int, error) {
	f.readers.Add(1)
	defer f.readers.Add(-1)
	if f.name == "f0" {
		if gate := f.gate.Swap(nil); gate != nil {
			f.waiting <- struct{}{}
			<-*gate
		}
	}
	return f.File.(io.ReaderAt).ReadAt(p, off)
}

func (f *gatedFile) Close() error {
	require.Zero(f.t, f.readers.Load(), "%s is closed while it is read", f.name)
	return f.File.Close()
}

// TestFilesInUse: a file stays open while it is read, even if many other files are read in the
// meantime, or another read of the same file ends. Close lets the read in progress finish.
func TestFilesInUse(t *testing.T) {
	const n = maxIdle + 10
	offset, length := entryOfOne()
	data := must(os.ReadFile("testdata/distcp/one/__0_0.distcp"))
	folder := fstest.MapFS{}
	var chunks, places []string
	for i := range n {
		name := fmt.Sprint("f", i)
		folder[name] = &fstest.MapFile{Data: data}
		chunks = append(chunks, boxOf([]int{3 * i}, []int{3}))
		places = append(places, index("w", 3*i), info(name, offset, length))
	}
	folder[metadataFile] = &fstest.MapFile{Data: []byte(metadata(dict(str("w"), tensorOf("float32", []int{3 * n}, chunks...)), dict(places...)))}
	g := &gated{FS: folder, t: t, waiting: make(chan struct{})}
	f := must(OpenFS(g, "."))
	w := must(f.Tensor("w"))
	read := func(first int) error {
		return errorOf(safetensors.Append[float32](nil, must(w.Slice(safetensors.Span(first, first+3)))))
	}
	require.NoError(t, read(0)) // opens the chunk, so that later reads read only its data
	gate, done := make(chan struct{}), make(chan error)
	g.gate.Store(&gate)
	go func() { done <- read(0) }()
	<-g.waiting
	for i := range n {
		require.NoError(t, read(3*i))
	}
	closed := make(chan error)
	go func() { closed <- f.Close() }()
	close(gate)
	require.NoError(t, <-done)
	require.NoError(t, <-closed)
}

// TestFilledFile: a chunk may fill its file completely.
func TestFilledFile(t *testing.T) {
	p := &rankPickle{}
	chunk := p.file(p.floats(0, 3))
	folder := fstest.MapFS{"x": chunk, metadataFile: {Data: []byte(metadata(
		dict(str("w"), tensorOf("float32", []int{3}, boxOf([]int{0}, []int{3}))), dict(index("w", 0), info("x", 0, len(chunk.Data)))))}}
	requireFloats(t, must(openSkipping(folder, ".")), "w", 3)
}

// TestPanickingFS: a panic in a callback reaches the caller, and a file that was opened is closed.
func TestPanickingFS(t *testing.T) {
	var b bytes.Buffer
	x := must(safetensors.NewTensor(safetensors.U8, []int{1}, []byte{1}))
	require.NoError(t, Write(&b, map[string]Piece{"x": must(NewPiece(x))}, nil))
	file := &fstest.MapFile{Data: b.Bytes()}
	fsys := &counted{FS: fstest.MapFS{"a.safetensors": file, "b.safetensors": file}, panics: "b.safetensors"}
	require.PanicsWithValue(t, "no such luck", func() { OpenFS(fsys, ".") })
	require.Zero(t, fsys.open.Load())
}

// TestShared: a value that the memo holds once, such as a list of chunks or the place of a chunk,
// counts each time it is used. When it did not, a file of 1.3 MB with such a list took more than 6
// GB of memory.
func TestShared(t *testing.T) {
	const n = 100
	var ones []string
	for i := range n {
		ones = append(ones, boxOf([]int{i}, []int{1}))
	}
	tensors := tensorOf("float32", []int{n}, ones...) + "q\x000}("
	for i := range 10 * n {
		tensors += str(fmt.Sprint(i)) + "h\x00"
	}
	place := index("w", make([]int, maxRank)...) + "q\x000" + info("x", 0, 10) + "q\x010"
	for name, meta := range map[string]string{
		"chunks": metadata(tensors+"u", "}"),
		"places": metadata("}", place+"}("+strings.Repeat("h\x00h\x01", 10*n)+"u"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := readMetadata([]byte(meta), 30_000)
			require.ErrorContains(t, err, "the pickle copies too much")
			require.NotContains(t, err.Error(), "at byte", "the pickle alone takes fewer steps")
		})
	}
}

// TestCuts: a tiling that would cut pieces into too many parts is an error, so that hostile files
// cannot make more pieces than a small multiple of their number.
func TestCuts(t *testing.T) {
	wheel := []box{
		{[]int{0, 0}, []int{1, 2}}, {[]int{0, 2}, []int{2, 3}}, {[]int{2, 1}, []int{3, 3}},
		{[]int{1, 0}, []int{3, 1}}, {[]int{1, 1}, []int{2, 2}},
	}
	var pieces []*piece
	for _, b := range wheel {
		rows, columns := b.end[0]-b.begin[0], b.end[1]-b.begin[1]
		x := must(safetensors.NewTensor(safetensors.U8, []int{rows, columns}, make([]byte, rows*columns)))
		pieces = append(pieces, &piece{b, b, x, "a file"})
	}
	all := box{[]int{0, 0}, []int{3, 3}}
	must((&tiling{name: "x", dims: []int{0, 1}, count: 5, parts: 2}).join(all, pieces, 0))
	_, err := (&tiling{name: "x", dims: []int{0, 1}, count: 5, parts: 1}).join(all, pieces, 0)
	require.EqualError(t, err, `tensor "x": its 5 pieces would have to be cut too often to be joined`)
}
