package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"os"
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

// TestReadsOnlyWhatIsNeeded counts the bytes that slices of a file read: sparse
// runs exactly, dense ones with their gaps, which are shorter than a page or at most
// three times as long as the runs.
func TestReadsOnlyWhatIsNeeded(t *testing.T) {
	x := counting(U32, 64, 4096)
	file := saved(map[string]Tensor{"x": x}, nil)
	r := &recordingReader{ReaderAt: bytes.NewReader(file)}
	f := must(NewFile(r, int64(len(file))))
	require.Equal(t, 1, r.calls)
	require.EqualValues(t, 64<<10, r.bytes)
	x = must(f.Tensor("x"))
	for _, c := range []struct {
		rule      string
		ranges    []Range
		exact     int64
		mostCalls int
	}{
		{"adjacent rows are one read", []Range{Span(3, 5)}, 2 * 16384, 1},
		{"an eighth of each row is read alone", []Range{All(), Span(64, 576)}, 64 * 2048, 64},
		{"one element of each row is read alone", []Range{All(), At(7)}, 64 * 4, 64},
		{"half of each row is read as one block", []Range{Span(0, 9), Span(0, 2048)}, 8*16384 + 8192, 1},
		{"a quarter of each row is read as one block", []Range{Span(0, 32), Span(0, 1024)}, 31*16384 + 4096, 1},
		{"every second element is read as one block", []Range{At(0), All().By(2)}, 4095 * 4, 1},
		{"an element of each page is read as one block", []Range{At(0), All().By(1024)}, 3*4096 + 4, 1},
		{"an element of every second page is read alone", []Range{At(0), All().By(2048)}, 2 * 4, 2},
	} {
		t.Run(c.rule, func(t *testing.T) {
			part := must(x.Slice(c.ranges...))
			r.calls, r.bytes = 0, 0
			must(Append[uint32](nil, part))
			require.Equal(t, c.exact, r.bytes)
			require.LessOrEqual(t, r.calls, c.mostCalls)
		})
	}
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
	head := fileOf(fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%d,%d],"data_offsets":[0,%d]},"b":{"dtype":"F32","shape":[%d,%d],"data_offsets":[%d,%d]}}`,
		dim, dim, int64(dim*dim), dim, dim, int64(dim*dim), int64(5*dim*dim)), 0)
	f := must(NewFile(hugeReader{head}, int64(len(head))+5*dim*dim))
	value := func(at int64) byte { return byte(at ^ at>>8 ^ at>>16 ^ at>>32 ^ at>>40) }
	part := must(must(f.Tensor("a")).Slice(Span(-3, dim), Span(dim-2, dim)))
	got := must(Append[byte](nil, part))
	require.Equal(t, []byte{
		value((dim-3)*dim + dim - 2), value((dim-3)*dim + dim - 1),
		value((dim-2)*dim + dim - 2), value((dim-2)*dim + dim - 1),
		value((dim-1)*dim + dim - 2), value((dim-1)*dim + dim - 1),
	}, got)
	b := must(f.Tensor("b"))
	got = must(Append[byte](nil, must(b.Slice(At(-1), At(-1)))))
	require.Equal(t, []byte{value(5*dim*dim - 4), value(5*dim*dim - 3), value(5*dim*dim - 2), value(5*dim*dim - 1)}, got)
	got = must(Append[byte](nil, must(b.Slice(All().By(dim/2), At(1)))))
	at := int64(dim*dim + dim/2*dim*4 + 4)
	require.Equal(t, []byte{value(at), value(at + 1), value(at + 2), value(at + 3)}, got[4:])
	require.EqualValues(t, dim, f.ParameterCount()[F32]/dim)

	y := must(must(f.Tensor("a")).Transpose())
	window := make([]byte, 3)
	must(y.ReadAt(window, (dim-1)*dim+1))
	require.Equal(t, []byte{value(2*dim - 1), value(3*dim - 1), value(4*dim - 1)}, window)
	corner := must(y.Slice(Span(-2, dim), Span(dim-2, dim)))
	require.Equal(t, []byte{value((dim-1)*dim - 2), value(dim*dim - 2), value((dim-1)*dim - 1), value(dim*dim - 1)}, appended[byte](corner))
	require.Error(t, errorOf(Append[byte](nil, y)))
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

// TestFailingReader makes the reader of a header fail after every number of bytes.
func TestFailingReader(t *testing.T) {
	x := counting(U32, 8, 8)
	file := saved(map[string]Tensor{"x": x}, nil)
	for n := range int64(len(file)) {
		r := &failingReader{ReaderAt: bytes.NewReader(file), left: n}
		require.ErrorIs(t, errorOf(NewFile(r, int64(len(file)))), errReader)
	}
}

// A rangesReader is a RangeReader that records the ranges it is asked for. Tensors that
// share it are read at the same time.
type rangesReader struct {
	recordingReader
	ranges []string // guarded by mu, too
}

func rangesOf(data []byte) *rangesReader {
	return &rangesReader{recordingReader: recordingReader{ReaderAt: bytes.NewReader(data)}}
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
// runs.
func TestRangeReader(t *testing.T) {
	x := counting(U32, 3, 2, 4)
	file := saved(map[string]Tensor{"x": x}, nil)
	r := rangesOf(file)
	x = must(must(NewFile(r, int64(len(file)))).Tensor("x"))
	got := must(Append[uint32](nil, must(x.Slice(Span(1, 3), All(), Span(1, 3)))))
	require.Equal(t, []uint32{9, 10, 13, 14, 17, 18, 21, 22}, got)
	h := must(ReadHeader(bytes.NewReader(file)))
	var want []string
	for _, element := range []int64{9, 13, 17, 21} {
		want = append(want, fmt.Sprintf("%d+8", h.DataStart+4*element))
	}
	require.Equal(t, want, r.ranges)
	require.Equal(t, 1, r.calls, "the header")
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
		r := rangesOf(file)
		tensors = maps.Collect(must(NewFile(r, int64(len(file)))).Tensors())
		again := saved(tensors, nil)
		require.Equal(t, file, again)
		require.NoError(t, WriteShards(t.TempDir(), tensors, nil, 1))
		name := writeTemp(t, tensors)
		require.Equal(t, file, must(os.ReadFile(name)))
	}
}

// TestReadTogetherInOrder writes small tensors of a file that has them in another order:
// they are one call of ReadRanges all the same.
func TestReadTogetherInOrder(t *testing.T) {
	var file bytes.Buffer
	names := []string{"c", "a", "b"}
	h := new(Header)
	for _, name := range names {
		h.Tensors = append(h.Tensors, TensorInfo{Name: name, DType: U8, Shape: []int{8}})
	}
	w := must(NewWriter(&file, h))
	for _, name := range names {
		must(must(w.Tensor(name)).Write(bytes.Repeat([]byte(name), 8)))
	}
	require.NoError(t, w.Close())
	r := rangesOf(file.Bytes())
	f := must(NewFile(r, int64(file.Len())))
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
	for range 20 {
		runtime.Gosched() // to let others in
	}
	return r.endlessReader.ReadAt(b, off)
}

// TestConcurrentReads counts the reads that one operation has in flight, on tensors
// whose blocks are read concurrently, and each in several reads.
func TestConcurrentReads(t *testing.T) {
	const rows, columns = 3000, 8192
	h := &Header{Tensors: []TensorInfo{{Name: "x", DType: U8, Shape: []int{rows, columns}}}}
	head := must(h.AppendBinary(nil))
	r := &crowdedReader{endlessReader: endlessReader{head}}
	x := must(must(NewFile(r, int64(len(head))+rows*columns)).Tensor("x"))
	sparse := must(x.Slice(All(), Span(100, 1100)))
	joined := must(Concat(1, sparse, must(x.Slice(All(), Span(5000, 6000)))))
	batches := must(must(x.Slice(Span(0, 600))).Reshape(6, 100, columns))
	transposed := must(batches.Transpose(0, 2, 1))
	for what, x := range map[string]Tensor{"slice": sparse, "joined": joined, "transposed": transposed} {
		tensors := map[string]Tensor{"a": x, "b": x, "c": x}
		operations := readings(t.TempDir())
		operations["several"] = func(Tensor) ([]byte, error) { return nil, Write(io.Discard, tensors, nil) }
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

// TestConcurrentReadsOfSmallTensors is the same for tensors of which many are read
// together.
func TestConcurrentReadsOfSmallTensors(t *testing.T) {
	const n, size = 2000, 4 << 10
	h := new(Header)
	for i := range n {
		h.Tensors = append(h.Tensors, TensorInfo{Name: fmt.Sprintf("%04d", i), DType: U8, Shape: []int{size}})
	}
	head := must(h.AppendBinary(nil))
	r := &crowdedReader{endlessReader: endlessReader{head}}
	tensors := maps.Collect(must(NewFile(r, int64(len(head))+n*size)).Tensors())
	require.NoError(t, Write(io.Discard, tensors, nil))
	require.NoError(t, WriteFile(filepath.Join(t.TempDir(), "x"), tensors, nil))
	require.LessOrEqual(t, r.most.Load(), int64(16))
}
