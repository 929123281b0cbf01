package dcp

import (
	"fmt"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// peeled returns the n pieces of a matrix of bytes from which a row and a column are cut off in
// turn. They do not form a grid, so that each cut separates only one piece from the rest.
func peeled(n, rank int) []*safetensors.File {
	size, x, y := n/2+1, 0, 0
	var ranks []pieces
	piece := func(rows, columns int) {
		shape, offsets := slices.Repeat([]int{1}, rank), make([]int, rank)
		shape[rank-2], shape[rank-1] = rows, columns
		offsets[rank-2], offsets[rank-1] = x, y
		x := must(safetensors.NewTensor(safetensors.U8, shape, make([]byte, rows*columns)))
		ranks = append(ranks, pieces{"x": must(NewPiece(x, offsets...))})
	}
	for i := range n - 1 {
		if i%2 == 0 {
			piece(1, size-y)
			x++
		} else {
			piece(size-x, 1)
			y++
		}
	}
	piece(size-x, size-y)
	return parsed(ranks...)
}

// TestDepth: pieces may nest as deep as the limit allows, and no deeper. Without a limit, hostile
// pieces could nest as many tensors as there are files.
func TestDepth(t *testing.T) {
	x := must(must(Assemble(peeled(65, 2)...)).Tensor("x"))
	require.Equal(t, make([]byte, 33*33), must(safetensors.Append[byte](nil, x)))
	require.EqualError(t, errorOf(Assemble(peeled(66, 2)...)), `safetensors: tensor "x": its 66 pieces nest deeper than 64 levels`)

	const n = 1000
	files := peeled(n, 60)
	require.Less(t, testplatform.Allocated(func() {
		require.ErrorContains(t, errorOf(Assemble(files...)), "nest deeper")
	}), uint64(n*10_000), "a few times the headers")
}

// TestFileCount: more files than the limit are refused before any file is opened.
func TestFileCount(t *testing.T) {
	f := must(safetensors.FileOf(nil, nil, nil))
	files := make([]*safetensors.File, 10_001)
	for i := range files {
		files[i] = f
	}
	require.EqualError(t, errorOf(Assemble(files...)), "safetensors: 10001 files exceed the limit of 10000")
	must(Assemble(files[1:]...))
	requireTensors(t, nil, must(Assemble()))

	for _, name := range []string{"model-%d.safetensors", "model_world_size_10001_rank_%d.pt"} {
		folder := fstest.MapFS{}
		for i := range 10_001 {
			folder[fmt.Sprintf(name, i)] = &fstest.MapFile{}
		}
		require.ErrorContains(t, errorOf(OpenFS(folder, ".")), "10001 files exceed the limit of 10000", name)
	}
}

// TestRank: a tensor with more dimensions than PyTorch supports is refused, whatever kind of file
// it is in.
func TestRank(t *testing.T) {
	for _, rank := range []int{64, 65} {
		shape := slices.Repeat([]int{1}, rank)
		whole := must(safetensors.NewTensor(safetensors.U8, shape, []byte{7}))
		for _, f := range []*safetensors.File{
			must(sharded(shape, `{"x": {"saved_offsets": [`+strings.Repeat("0,", rank-1)+`0]}}`)),
			must(safetensors.FileOf(map[string]safetensors.Tensor{"x": whole}, nil, nil)),
		} {
			_, err := Assemble(f)
			if rank == 64 {
				require.NoError(t, err)
				continue
			}
			require.EqualError(t, err, `safetensors: tensor "x": its rank in file 1, 65, exceeds the limit of 64`)
			require.ErrorAs(t, err, new(*safetensors.FormatError))
		}
	}
}

// A gate is a file system whose files cannot be opened. Its Open counts the calls in progress, and returns only
// after as many as width have been in progress at the same time.
type gate struct {
	fstest.MapFS
	ending    string // ending of the names of the files that Open counts
	width     int64
	now, most atomic.Int64
	once      sync.Once
	full      chan struct{} // closed once width calls were in progress
}

func (g *gate) Open(name string) (fs.File, error) {
	if !strings.HasSuffix(name, g.ending) {
		return g.MapFS.Open(name)
	}
	n := g.now.Add(1)
	defer g.now.Add(-1)
	for known := g.most.Load(); n > known && !g.most.CompareAndSwap(known, n); {
		known = g.most.Load()
	}
	if n == g.width {
		g.once.Do(func() { close(g.full) })
	}
	<-g.full
	for range 20 {
		runtime.Gosched() // lets other calls begin
	}
	return nil, fs.ErrPermission
}

// TestShardsAtOnce: at most 20 files are opened concurrently, and that many are, in each kind of
// checkpoint.
func TestShardsAtOnce(t *testing.T) {
	const width, count = 20, 60
	shards, ranks, chunks := make(fstest.MapFS), make(fstest.MapFS), make(fstest.MapFS)
	var places, boxes []string
	for i := range count {
		shards[FileName(i)] = &fstest.MapFile{}
		ranks[fmt.Sprintf("model_rank_%d.pt", i)] = &fstest.MapFile{}
		name := fmt.Sprintf("__%d_0.distcp", i)
		chunks[name] = &fstest.MapFile{}
		boxes = append(boxes, boxOf([]int{i}, []int{1}))
		places = append(places, index("w", i), info(name, 0, 10))
	}
	chunks[metadataFile] = &fstest.MapFile{Data: []byte(metadata(dict(str("w"), tensorOf("uint8", []int{count}, boxes...)), dict(places...)))}
	for ending, folder := range map[string]fstest.MapFS{suffix: shards, ".pt": ranks, ".distcp": chunks} {
		g := &gate{MapFS: folder, ending: ending, width: width, full: make(chan struct{})}
		require.ErrorIs(t, errorOf(OpenFS(g, ".")), fs.ErrPermission, ending)
		require.EqualValues(t, width, g.most.Load(), ending)
	}
}
