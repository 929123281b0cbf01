package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A recordingReader counts the reads and the bytes read.
type recordingReader struct {
	io.ReaderAt
	mu    sync.Mutex
	calls int
	bytes int64
}

func (r *recordingReader) ReadAt(b []byte, off int64) (int, error) {
	r.mu.Lock()
	r.calls++
	r.bytes += int64(len(b))
	r.mu.Unlock()
	return r.ReaderAt.ReadAt(b, off)
}

// A hugeReader is a file of many TiB: a header, then data in which each byte is a
// function of its offset.
type hugeReader struct{ head []byte }

func (r hugeReader) ReadAt(b []byte, off int64) (int, error) {
	for i := range b {
		if at := off + int64(i); at < int64(len(r.head)) {
			b[i] = r.head[at]
		} else {
			at -= int64(len(r.head))
			b[i] = byte(at ^ at>>8 ^ at>>16 ^ at>>32 ^ at>>40)
		}
	}
	return len(b), nil
}

// TestOffsetsBeyond32Bits reads slices of tensors of 16 and 64 TiB, one of them transposed.
func TestOffsetsBeyond32Bits(t *testing.T) {
	const dim = 1 << 22 // 16 TiB of bytes, 64 TiB of F32
	h := &Header{Tensors: []TensorInfo{{Name: "a", DType: U8, Shape: []int{dim, dim}}, {Name: "b", DType: F32, Shape: []int{dim, dim}}}}
	head := must(h.AppendBinary(nil))
	f := must(NewFile(hugeReader{head}, int64(len(head))+5*dim*dim))
	require.EqualValues(t, dim, f.ParameterCount()[F32]/dim)
	a, b := must(f.Tensor("a")), must(f.Tensor("b"))
	turned := must(a.Transpose())
	require.Error(t, errorOf(Append[byte](nil, turned)))
	window := make([]byte, 3)
	must(turned.ReadAt(window, (dim-1)*dim+1))
	at := int64(dim*dim + dim/2*dim*4 + 4)
	for _, c := range []struct {
		got []byte
		at  []int64 // the offsets of what is read
	}{
		{appended[byte](must(a.Slice(Span(-3, dim), Span(dim-2, dim)))), []int64{(dim-2)*dim - 2, (dim-2)*dim - 1, (dim-1)*dim - 2, (dim-1)*dim - 1, dim*dim - 2, dim*dim - 1}},
		{appended[byte](must(b.Slice(At(-1), At(-1)))), []int64{5*dim*dim - 4, 5*dim*dim - 3, 5*dim*dim - 2, 5*dim*dim - 1}},
		{appended[byte](must(b.Slice(All().By(dim/2), At(1))))[4:], []int64{at, at + 1, at + 2, at + 3}},
		{window, []int64{2*dim - 1, 3*dim - 1, 4*dim - 1}},
		{appended[byte](must(turned.Slice(Span(-2, dim), Span(dim-2, dim)))), []int64{(dim-1)*dim - 2, dim*dim - 2, (dim-1)*dim - 1, dim*dim - 1}},
	} {
		for i, at := range c.at {
			require.Equal(t, byte(at^at>>8^at>>16^at>>32^at>>40), c.got[i], c.at)
		}
		require.Len(t, c.got, len(c.at))
	}
}

// TestCountsBeyond63Bits counts more elements than an int64 holds, in fewer bytes.
func TestCountsBeyond63Bits(t *testing.T) {
	tensors := make(map[string]Tensor)
	for i := range 7 {
		tensors[fmt.Sprint(i)] = must(NewTensorAt(F4, []int{1 << 16, 1 << 16, 1 << 16, 1 << 13}, hugeReader{}))
	}
	f := must(FileOf(tensors, nil, nil))
	require.Equal(t, map[DType]int64{F4: math.MaxInt64}, f.ParameterCount())
	index := must(NewIndex(func(yield func(string, *Header) bool) { yield("a", f.Header()) }))
	require.Contains(t, string(index.Metadata), fmt.Sprintf(`"total_parameters": %d`, uint64(7)<<61))
}

// A rangesReader is a RangeReader that records the ranges it is asked for. Tensors that
// share it are read at the same time.
type rangesReader struct {
	recordingReader
	ranges []string // guarded by mu, too
}

func rangesOf(r io.ReaderAt) *rangesReader {
	return &rangesReader{recordingReader: recordingReader{ReaderAt: r}}
}

func (r *rangesReader) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	end := int64(0)
	for off, b := range ranges {
		if off < end {
			return errors.New("the ranges are not in increasing order")
		}
		if len(b) == 0 || cap(b) > len(b) {
			return errors.New("a range is empty, or more than its bytes can be written")
		}
		if _, err := r.ReaderAt.ReadAt(b, off); err != nil {
			return err
		}
		end = off + int64(len(b))
		r.mu.Lock()
		r.ranges = append(r.ranges, fmt.Sprintf("%d+%d", off, len(b)))
		r.mu.Unlock()
	}
	return nil
}

// TestRangeReader checks that a slice is one call of ReadRanges with exactly its
// runs, and that no ranges overlap where small tensors share bytes of a file.
func TestRangeReader(t *testing.T) {
	file := saved(map[string]Tensor{"x": counting(U32, 3, 2, 20)}, nil)
	r := rangesOf(bytes.NewReader(file))
	f := must(NewFile(r, int64(len(file))))
	x := must(f.Tensor("x"))
	appended[uint32](must(x.Slice(Span(1, 3), All(), Span(1, 3))))
	var want []string
	for _, element := range []int64{41, 61, 81, 101} {
		want = append(want, fmt.Sprintf("%d+8", must(ReadHeader(bytes.NewReader(file))).DataStart+4*element))
	}
	require.Equal(t, want, r.ranges)
	require.Equal(t, 1, r.calls, "the header")

	x = must(x.Reshape(120))
	for _, parts := range [][][2]int{
		{{0, 10}, {10, 20}, {20, 30}}, // adjacent ones do not
		{{0, 10}, {20, 40}, {30, 50}},
		{{0, 20}, {10, 30}, {40, 50}},
		{{0, 10}, {20, 40}, {20, 40}},
		{{50, 60}, {40, 51}, {0, 10}},
	} {
		tensors := map[string]Tensor{}
		for i, p := range parts {
			tensors[fmt.Sprint(i)] = must(x.Slice(Span(p[0], p[1])))
		}
		requireTensors(t, tensors, must(Parse(saved(tensors, nil))))
	}
}

// TestNoEmptyRanges writes tensors without elements, alone and among others, that a
// RangeReader has: a request for no bytes is an error of HTTP.
func TestNoEmptyRanges(t *testing.T) {
	for _, sizes := range [][]int{{0}, {0, 0}, {0, 1, 0, 2, 0}, {1 << 18, 0}, {0, 1 << 18, 0, 1}} {
		tensors := make(map[string]Tensor)
		for i, n := range sizes {
			tensors[fmt.Sprint(i)] = counting(U32, n)
		}
		file := saved(tensors, nil)
		r := rangesOf(bytes.NewReader(file))
		tensors = maps.Collect(must(NewFile(r, int64(len(file)))).Tensors())
		for way, write := range writings(t.TempDir()) {
			require.Equal(t, file, saved(maps.Collect(must(write(tensors)).Tensors()), nil), way)
		}
	}
}

// TestReadTogetherInOrder writes small tensors of a file that has them in another order:
// they are one call of ReadRanges all the same.
func TestReadTogetherInOrder(t *testing.T) {
	h := new(Header)
	for _, name := range []string{"c", "a", "b"} {
		h.Tensors = append(h.Tensors, TensorInfo{Name: name, DType: U8, Shape: []int{8}})
	}
	file := append(must(h.AppendBinary(nil)), "ccccccccaaaaaaaabbbbbbbb"...)
	r := rangesOf(bytes.NewReader(file))
	f := must(NewFile(r, int64(len(file))))
	calls := r.calls
	sorted := saved(maps.Collect(f.Tensors()), nil)
	require.Equal(t, "aaaaaaaabbbbbbbbcccccccc", string(sorted[len(sorted)-24:]))
	require.Equal(t, calls, r.calls)
	require.Len(t, r.ranges, 3)
}

// A crowdedReader notes how many reads run at the same time.
type crowdedReader struct {
	endlessReader
	now, most atomic.Int64
}

func (r *crowdedReader) ReadAt(b []byte, off int64) (int, error) {
	n := r.now.Add(1)
	defer r.now.Add(-1)
	for most := r.most.Load(); n > most && !r.most.CompareAndSwap(most, n); {
		most = r.most.Load()
	}
	for i := 0; i < 20 || i < 100_000 && r.most.Load() == 1; i++ {
		runtime.Gosched() // to let others in
	}
	return r.endlessReader.ReadAt(b, off)
}

// TestConcurrentReads counts the reads that one operation has in flight, on tensors
// whose blocks are read concurrently, and each in several reads.
func TestConcurrentReads(t *testing.T) {
	const rows, columns = 3000, 8192
	head := bytesHead(rows, columns)
	r := &crowdedReader{endlessReader: endlessReader{head}}
	x := must(must(NewFile(r, int64(len(head))+rows*columns)).Tensor("x"))
	sparse := must(x.Slice(All(), Span(100, 1100)))
	joined := must(Concat(1, sparse, must(x.Slice(All(), Span(5000, 6000)))))
	batches := must(must(x.Slice(Span(0, 600))).Reshape(6, 100, columns))
	transposed := must(batches.Transpose(0, 2, 1))
	small := make(map[string]Tensor) // of which many are read together
	for i := range 2000 {
		small[fmt.Sprint(i)] = must(x.Slice(At(i), Span(0, 4096)))
	}
	for what, x := range map[string]Tensor{"slice": sparse, "joined": joined, "transposed": transposed} {
		tensors := map[string]Tensor{"a": x, "b": x, "c": x}
		operations := readings(t.TempDir())
		operations["several"] = func(Tensor) ([]byte, error) { return nil, Write(io.Discard, tensors, nil) }
		operations["small"] = func(Tensor) ([]byte, error) { return nil, Write(io.Discard, small, nil) }
		operations["small file"] = func(Tensor) ([]byte, error) { return nil, WriteFile(filepath.Join(t.TempDir(), "x"), small, nil) }
		operations["WriteShards"] = func(Tensor) ([]byte, error) { return nil, WriteShards(t.TempDir(), tensors, nil, 1) }
		for operation, do := range operations {
			r.most.Store(0)
			must(do(x))
			most := int64(16)
			if operation == "WriteShards" {
				most *= 4 // as many shards are written concurrently
			}
			require.LessOrEqual(t, r.most.Load(), most, "%s %s", operation, what)
			if what == "slice" {
				require.Greater(t, r.most.Load(), int64(1), operation)
			}
		}
	}
}

// TestReadsOnlyWhatIsNeeded counts the bytes that are read of a file: of sparse runs
// exactly those, of dense ones also their gaps, which are shorter than a page or at most
// three times as long as the runs; each byte once, and in large reads.
func TestReadsOnlyWhatIsNeeded(t *testing.T) {
	r := &recordingReader{ReaderAt: endlessReader{bytesHead(1 << 20)}}
	f := must(NewFile(r, int64(len(bytesHead(1<<20)))+1<<20))
	require.Equal(t, 1, r.calls)
	require.EqualValues(t, 64<<10, r.bytes)
	x := must(must(must(f.Tensor("x")).Bitcast(U32)).Reshape(64, 4096))
	of := func(shape ...int) Tensor { return must(NewTensorAt(F32, shape, r)) }
	turned := must(of(3, 1500, 1000).Transpose(0, 2, 1))
	through := must(must(of(8, 1024, 64).Transpose(0, 2, 1)).Reshape(8*64, 1024))
	part := must(through.Part(0, 3, 8))
	for _, c := range []struct {
		rule      string
		x         Tensor
		exact     int64
		mostCalls int
	}{
		{"adjacent rows are one read", must(x.Slice(Span(3, 5))), 2 * 16384, 1},
		{"an eighth of each row is read alone", must(x.Slice(All(), Span(64, 576))), 64 * 2048, 64},
		{"one element of each row is read alone", must(x.Slice(All(), At(7))), 64 * 4, 64},
		{"half of each row is read as one block", must(x.Slice(Span(0, 9), Span(0, 2048))), 8*16384 + 8192, 1},
		{"a quarter of each row is read as one block", must(x.Slice(Span(0, 32), Span(0, 1024))), 31*16384 + 4096, 1},
		{"every second element is read as one block", must(x.Slice(At(0), All().By(2))), 4095 * 4, 1},
		{"an element of each page is read as one block", must(x.Slice(At(0), All().By(1024))), 3*4096 + 4, 1},
		{"an element of every second page is read alone", must(x.Slice(At(0), All().By(2048))), 2 * 4, 2},
		{"matrices are transposed in large reads", turned, turned.Size(), 6},
		{"what is read through is read once", through, through.Size(), 6},
		{"converted, too", must(through.Convert(F64)), through.Size(), 6},
		{"a part of it is read alone", part, part.Size(), 1},
		{"columns of that are not", must(part.Slice(All(), Span(0, 512))), part.Size(), 1},
	} {
		for way, read := range readings(t.TempDir()) {
			r.calls, r.bytes = 0, 0
			must(read(c.x))
			require.Equal(t, c.exact, r.bytes, "%s: %s", c.rule, way)
			require.LessOrEqual(t, r.calls, c.mostCalls, "%s: %s", c.rule, way)
		}
	}
	for _, c := range []struct {
		rule         string
		x            Tensor
		n, off, most int64
	}{
		{"rows that were columns read one matrix", turned, 3 * 1500 * 4, 10 * 1500 * 4, 1500 * 4000},
		{"two elements read two rows", turned, 8, 4, 2 * 4000},
		{"a window of what is read through does not read the rest", through, 4096, 4096 * 100, 64 * 1024 * 4},
	} {
		r.bytes = 0
		must(c.x.ReadAt(make([]byte, c.n), c.off))
		require.LessOrEqual(t, r.bytes, c.most, c.rule)
	}
}

// A callsReader counts the calls of ReadRanges and ReadAt, each a round trip.
type callsReader struct {
	*rangesReader
	calls *atomic.Int64
}

func (r callsReader) ReadAt(b []byte, off int64) (int, error) {
	r.calls.Add(1)
	return r.ReaderAt.ReadAt(b, off)
}

func (r callsReader) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	r.calls.Add(1)
	return r.rangesReader.ReadRanges(ranges)
}

// TestCallsOfSmallTensors: many small tensors of several shards, each a RangeReader, take one call
// of ReadRanges a shard to write, not one a tensor.
func TestCallsOfSmallTensors(t *testing.T) {
	const shards, each = 20, 10
	var calls atomic.Int64
	all := make(map[string]Tensor)
	for s := range shards {
		tensors := make(map[string]Tensor)
		for i := range each {
			tensors[fmt.Sprintf("layer.%02d.%d", s, i)] = counting(U32, 64+s)
		}
		file := saved(tensors, nil)
		f := must(NewFile(callsReader{rangesOf(bytes.NewReader(file)), &calls}, int64(len(file))))
		maps.Copy(all, maps.Collect(f.Tensors()))
	}
	ways := writings(t.TempDir())
	for _, way := range []string{"Write", "WriteFile"} {
		calls.Store(0)
		f := must(ways[way](all))
		require.LessOrEqual(t, calls.Load(), int64(shards), way)
		requireTensors(t, all, f)
	}
}
