package dcp

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestReadsOnlyWhatIsNeeded counts the bytes that slices of a tensor read from each of four files,
// which hold its columns. A RangeReader is called once for all runs in its file.
func TestReadsOnlyWhatIsNeeded(t *testing.T) {
	const rows, columns, ranks = 50, 32768, 4 // elements have two bytes, so a file has 16 KiB of each row
	x := random(rand.New(rand.NewPCG(5, 1)), safetensors.U16, rows, columns)
	var of []pieces
	for rank := range ranks {
		of = append(of, pieces{"x": must(must(NewPiece(x)).Shard(1, rank, ranks))})
	}
	files, readers := recorded(of...)
	rangeFiles, rangeReaders := recorded(of...)
	for i, r := range rangeReaders {
		rangeFiles[i] = must(safetensors.NewFile(rangeReader{r}, r.Size()))
	}
	for _, r := range readers {
		r.bytes = 0
	}
	var joined *safetensors.File
	require.Less(t, testplatform.Allocated(func() { joined = must(Assemble(files...)) }), uint64(100<<10))
	for _, r := range readers {
		require.Zero(t, r.bytes, "joining reads no data")
	}
	whole, ranged := must(joined.Tensor("x")), must(must(Assemble(rangeFiles...)).Tensor("x"))
	// read returns how many bytes a slice reads from each file, and the number of calls that read
	// them.
	read := func(whole safetensors.Tensor, readers []*recordingReader, ranges []safetensors.Range) (bytes [ranks]int, calls int) {
		for _, r := range readers {
			r.bytes, r.calls = 0, 0
		}
		requireSame(t, must(x.Slice(ranges...)), must(whole.Slice(ranges...)))
		for i, r := range readers {
			bytes[i] = r.bytes
			calls += r.calls
		}
		return bytes, calls
	}
	for _, c := range []struct {
		rule   string
		ranges []safetensors.Range
		bytes  [ranks]int // number of bytes read from each file
		calls  int        // largest number of calls, for all files together
	}{
		{"everything is read once", nil, [ranks]int{rows << 14, rows << 14, rows << 14, rows << 14}, 4 * rows},
		{"one file has the columns", []safetensors.Range{safetensors.All(), safetensors.Span(8192, 16384)}, [ranks]int{1: rows << 14}, rows},
		{"two files share them", []safetensors.Range{safetensors.All(), safetensors.Span(12288, 24576)}, [ranks]int{1: (rows-1)<<14 + 1<<13, 2: rows << 14}, 2 * rows},
		{"a few columns are read run by run", []safetensors.Range{safetensors.All(), safetensors.Span(8192, 8200)}, [ranks]int{1: rows * 16}, rows},
		{"half of the columns of a file are read with the gaps between", []safetensors.Range{safetensors.Span(0, 10), safetensors.Span(0, 4096)}, [ranks]int{9<<14 + 1<<13}, 1},
		{"one row", []safetensors.Range{safetensors.At(7)}, [ranks]int{1 << 14, 1 << 14, 1 << 14, 1 << 14}, 4},
		{"one element", []safetensors.Range{safetensors.At(7), safetensors.At(columns - 1)}, [ranks]int{3: 2}, 1},
		{"nothing", []safetensors.Range{safetensors.Span(7, 7)}, [ranks]int{}, 0},
	} {
		t.Run(c.rule, func(t *testing.T) {
			bytes, calls := read(whole, readers, c.ranges)
			require.Equal(t, c.bytes, bytes)
			require.LessOrEqual(t, calls, c.calls)
			bytes, calls = read(ranged, rangeReaders, c.ranges)
			require.EqualValues(t, must(x.Slice(c.ranges...)).Size(), bytes[0]+bytes[1]+bytes[2]+bytes[3])
			has := 0
			for _, n := range bytes {
				has += min(n, 1)
			}
			require.Equal(t, has, calls)
		})
	}
}

// TestClose: the File owns the files from which it was joined, and reads nothing after Close.
func TestClose(t *testing.T) {
	x := random(rand.New(rand.NewPCG(5, 2)), safetensors.U8, 4, 4)
	files := parsed(pieces{"x": must(must(NewPiece(x)).Shard(0, 0, 2))}, pieces{"x": must(must(NewPiece(x)).Shard(0, 1, 2)), "y": must(NewPiece(x))})
	f := must(Assemble(files...))
	tensors := maps.Collect(f.Tensors())
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	for name, x := range tensors {
		require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, x)), fs.ErrClosed, name)
	}
	for _, file := range files {
		for _, x := range file.Tensors() {
			require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, x)), fs.ErrClosed)
		}
	}
	// Reading is also an error if somebody else has closed a file.
	files = parsed(pieces{"x": must(NewPiece(x))}, pieces{"y": must(NewPiece(x))})
	f = must(Assemble(files...))
	require.NoError(t, files[1].Close())
	require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, must(f.Tensor("y")))), fs.ErrClosed)
}

// TestViews: joined tensors have no View; tensors that one file holds as a whole keep theirs.
func TestViews(t *testing.T) {
	f := must(Open(meshDir))
	defer f.Close()
	joined, viewed := 0, 0
	for name, x := range f.Tensors() {
		view, err := safetensors.View[byte](x)
		if err != nil {
			require.ErrorIs(t, err, errors.ErrUnsupported, name)
			joined++
			continue
		}
		require.True(t, bytes.Equal(must(safetensors.Append[byte](nil, x)), view), name)
		viewed++
	}
	require.Positive(t, joined)
	require.Positive(t, viewed)
}

// TestConcurrentUse reads, slices and saves one checkpoint from many goroutines, and closes it in
// the meantime. All bytes that were read are right. The race detector checks the accesses.
func TestConcurrentUse(t *testing.T) {
	want := loaded(wholeFile)
	f := must(Open(meshDir))
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			of := make(pieces)
			for name, x := range f.Tensors() {
				data, err := safetensors.Append[byte](nil, x)
				if err == nil {
					wanted, _ := safetensors.Append[byte](nil, want[name])
					if string(wanted) != string(data) {
						t.Errorf("%s is wrong", name)
					}
				} else if !errors.Is(err, fs.ErrClosed) {
					t.Error(err)
				}
				p := must(NewPiece(x))
				if len(x.Shape()) > 0 {
					p, _ = p.Shard(0, i, 8)
				}
				of[name] = p
			}
			err := WriteFile(filepath.Join(dir, FileName(i)), of, nil)
			if i == 7 {
				f.Close()
			}
			if err != nil && !errors.Is(err, fs.ErrClosed) {
				t.Error(err)
			}
		}()
	}
	all.Wait()
}

// BenchmarkSlice reads columns of a tensor of which four ranks have 512 each. Reading all 2048
// takes as long as reading a tensor of 16 MiB from one file. The columns pass through a buffer that
// stays in the cache of the processor, which costs little: smaller buffers, and copies directly
// from the mapping, were not faster.
func BenchmarkSlice(b *testing.B) {
	const ranks, size = 4, 2048
	x := random(rand.New(rand.NewPCG(6, 3)), safetensors.F32, size, size)
	dir := b.TempDir()
	for rank := range ranks {
		require.NoError(b, WriteFile(filepath.Join(dir, FileName(rank)), pieces{"x": must(must(NewPiece(x)).Shard(1, rank, ranks))}, nil))
	}
	f := must(Open(dir))
	defer f.Close()
	x = must(f.Tensor("x"))
	for _, columns := range []int{1, 64, size / ranks, size} {
		b.Run(fmt.Sprint(columns), func(b *testing.B) {
			slice := must(x.Slice(safetensors.All(), safetensors.Span(0, columns)))
			b.SetBytes(slice.Size())
			var buf []float32
			for b.Loop() {
				buf = must(safetensors.Append(buf[:0], slice))
			}
		})
	}
}
