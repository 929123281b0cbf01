package torch

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// deflatedZip returns a file of torch.save whose members are compressed: a pickle, and a storage
// "0" that consists of size zero bytes.
func deflatedZip(t testing.TB, pickle string, size int) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flate.BestSpeed) })
	must(io.WriteString(must(w.Create("a/data.pkl")), pickle))
	storage, block := must(w.Create("a/data/0")), make([]byte, 1<<20)
	for ; size > 0; size -= len(block) {
		must(storage.Write(block[:min(size, len(block))]))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

// manyOf returns n entries of a dict with different keys and the same value. named returns a pickle
// of a dict with these entries.
func manyOf(n int, value string) (s string) {
	for i := range n {
		s += str(fmt.Sprint(i)) + value
	}
	return s
}

func named(n int, value string) string { return "\x80\x02" + entries(manyOf(n, value)) + "." }

// TestSharedByMemo: a value that the memo holds once cannot be copied without bound, whichever
// opcode copies it. The files have some kilobytes.
func TestSharedByMemo(t *testing.T) {
	const million = 1 << 20
	put := func(v string) string { return v + "q\x000" } // stores v in the memo, and removes it from the stack
	ones := put("(" + strings.Repeat("K\x01", million) + "t")
	pairs := put("](" + strings.Repeat("N\x85", million) + "e")
	pair := put("]q\x01(" + "K\x01K\x02\x86q\x02" + strings.Repeat("h\x02", million) + "e")
	tensor := func(shape string) string { return tensorOf(storageOf(float4, "0", 4), 0, shape, shape) }
	for name, test := range map[string]struct{ pickle, want string }{
		"ordered dicts":       {pair + named(200, "ccollections\nOrderedDict\nh\x00\x85R"), "the pickle copies too much"},
		"ordered dicts, bad":  {pairs + named(200, "ccollections\nOrderedDict\nh\x00\x85R"), ""},
		"shapes":              {ones + named(200, tensor("h\x00")), "its shape: 1048576 dimensions, at most 64 are read"},
		"one tensor":          {put(ones[:len(ones)-3]+"q\x01"+tensor("h\x01")) + named(200, "h\x00"), "its shape: 1048576 dimensions, at most 64 are read"},
		"sizes":               {ones + named(200, "ctorch\nSize\nh\x00\x85R"), "no tensors at the top level"},
		"arguments":           {ones + named(200, "cos\nsystem\nh\x00R"), "the pickle copies too much"},
		"classes":             {ones + named(200, "cos\nsystem\nh\x00\x81"), "the pickle copies too much"},
		"texts":               {put(str("a")+"X\x00\x00\x10\x00"+strings.Repeat("a", million)) + named(200, "h\x00"), "no tensors at the top level"},
		"metadata":            {ones + "}(" + str("w") + tensor("(t") + manyOf(200, "h\x00") + "u.", ""},
		"metadata of strings": {put("X\x00\x00\x10\x00"+strings.Repeat("a", million)) + "}(" + str("w") + tensor("(t") + manyOf(200, "h\x00") + "u.", "its entries repeat the same containers too often"},
		"names":               {put("}X\x00\x00\x10\x00"+strings.Repeat("a", million)+tensor("(t")+"s") + "](" + strings.Repeat("h\x00", 200) + "e.", "its entries repeat the same containers too often, or their names are too long"},
		"failing lists":       {put("](cos\nsystem\n"+strings.Repeat("N", million)+"e") + "}(" + str("w") + tensor("(t") + manyOf(200, "h\x00") + "u.", `it holds the class or function "os.system"`},
		"tensors":             {put(tensor("("+strings.Repeat("K\x01", maxRank)+"t")) + "}(" + manyOf(1000, "h\x00") + "uq\x010}(" + str("w") + "h\x00" + manyOf(1000, "h\x01") + "u.", "its entries repeat the same containers too often"},
	} {
		t.Run(name, func(t *testing.T) {
			data := deflatedZip(t, test.pickle, 16)
			require.Less(t, len(data), 20<<10)
			var err error
			require.Less(t, testplatform.Allocated(func() { err = refusal(data) }), uint64(500<<20))
			if test.want != "" { // otherwise the text of the error does not matter
				require.ErrorContains(t, err, test.want)
			}
		})
	}
}

// TestSharedText: the limit on metadata also holds if the memo holds its text only once.
func TestSharedText(t *testing.T) {
	text := strings.Repeat("a", maxText/2+1)
	for name, value := range map[string]any{
		"values": &pickle.List{Items: slices.Repeat([]any{text}, 3)},
		"keys":   &pickle.List{Items: slices.Repeat([]any{&pickle.Dict{Entries: []pickle.Entry{{Key: text}}}}, 3)},
	} {
		_, err := flatten(dict{value: &pickle.Dict{Entries: []pickle.Entry{{Key: "list", Value: value}}}}, newOperation())
		require.ErrorContains(t, err, "its entries repeat the same containers too often", name)
	}
}

// TestSharedShape: the dimensions of each tensor count, even if tensors share a shape in the memo.
func TestSharedShape(t *testing.T) {
	ones := make([]int64, maxRank)
	text := "\x80\x02" + tensorOf(storageOf(float4, "0", 4), 0, nums(ones...), nums(ones...))
	text = strings.TrimSuffix(text, "R") + "q\x01ctorch._utils\n_rebuild_tensor_v2\nq\x00" + strings.Repeat("h\x00h\x01R0", 20) + "."
	u := newUnpickler(strings.NewReader(text), int64(len(text)))
	u.MaxSteps = 2000
	require.ErrorContains(t, errorOf(u.Load()), "the pickle copies too much")
}

// TestMetadataNumbers: json.load of Python reads floats of metadata as floats.
func TestMetadataNumbers(t *testing.T) {
	f, err := flatten(dict{value: &pickle.Dict{Entries: []pickle.Entry{
		{Key: "one", Value: 1.0},
		{Key: "list", Value: pickle.Tuple{int64(1), int64(-9876543210), 1.0, -0.5, 1e-8, 1e16, 1e300, math.NaN(), math.Inf(1), math.Inf(-1)}},
	}}}, newOperation())
	require.NoError(t, err)
	require.Equal(t, map[string]string{
		"one":  "1.0",
		"list": "[1,-9876543210,1.0,-0.5,1e-8,10000000000000000.0,1e+300,NaN,Infinity,-Infinity]",
	}, f.metadata)
}

// TestPackedStorage: a compressed storage above 256 MiB is refused if it packs better than weights
// can. The time that all tensors of a storage take together is limited by the size of the file.
func TestPackedStorage(t *testing.T) {
	open := func(size int, pickle func(storage string) string) (*held, error) {
		return openBytes(deflatedZip(t, pickle(storageOf("torch\nByteStorage", "0", int64(size))), size), "")
	}
	for name, pickle := range map[string]func(storage string) string{
		"a byte":     func(s string) string { return tensorOf(s, 16<<20-1, nums(1), nums(1)) },
		"all bytes":  func(s string) string { return tensorOf(s, 0, nums(16<<20), nums(1)) },
		"two bytes":  func(s string) string { return tensorOf(s, 0, nums(2), nums(16<<20-1)) },
		"transposed": func(s string) string { return tensorOf(s, 0, nums(1<<10, 1<<10), nums(1, 1<<10)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := must(open(16<<20, func(s string) string { return dictOf(pickle(s)) }))
			require.Less(t, testplatform.Allocated(func() {
				require.Equal(t, c.tensors["w"].Size(), must(c.tensors["w"].WriteTo(io.Discard)))
			}), uint64(96<<20))
		})
	}
	_, err := open(257<<20, func(s string) string { return dictOf(tensorOf(s, 0, nums(1), nums(1))) })
	require.ErrorContains(t, err, "would have to be unpacked into memory; store the archive without compression")
	_, err = open(255<<20, func(s string) string { return named(5, tensorOf(s, 0, nums(1), nums(1))) })
	require.ErrorContains(t, err, "too large for this file: its tensors repeat the same data too often")
}

// A virtual file consists of its head, and of zeros after it. It counts the reads, and the bytes
// that are read.
type virtual struct {
	head  []byte
	size  int64
	read  atomic.Int64
	calls atomic.Int64
}

func (v *virtual) ReadAt(p []byte, off int64) (int, error) {
	n := max(0, min(int64(len(p)), v.size-off))
	clear(p[:n])
	if off < int64(len(v.head)) {
		copy(p[:n], v.head[off:])
	}
	v.read.Add(n)
	v.calls.Add(1)
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// newVirtual returns a legacy file with one tensor, whose storage has this number of elements.
func newVirtual(elements int64, shape, strides string) *virtual {
	s := "(" + str("storage") + "c" + float4 + "\n" + str("0") + str("cpu") + num(elements) + "NtQ"
	object := dictOf(tensorOf(s, 0, shape, strides))
	head := legacyOf(object, "\x80\x02]\x8c\x010a.", num(elements)[2:])
	return &virtual{head: head, size: int64(len(head)) + 4*elements}
}

// TestReadsOnlyWhatIsNeeded opens a file of 5 GiB, and reads the end of its tensor.
func TestReadsOnlyWhatIsNeeded(t *testing.T) {
	const elements = 5 << 28
	v := newVirtual(elements, nums(elements), nums(1))
	c := must(openAll(v, v.size, ""))
	require.Less(t, v.read.Swap(0), int64(10_000))
	n, err := c.tensors["w"].ReadAt(make([]byte, 100), 4*elements-70)
	require.Equal(t, 70, n)
	require.Equal(t, io.EOF, err)
	require.EqualValues(t, 70, v.read.Load())
}

// TestTransposedMemory writes a transposed tensor of 256 MiB. Its matrix is read once, and is in
// memory once.
func TestTransposedMemory(t *testing.T) {
	const side = 8 << 10
	v := newVirtual(side*side, nums(side, side), nums(1, side))
	c := must(openAll(v, v.size, ""))
	memory := testplatform.Allocated(func() { require.EqualValues(t, 4*side*side, must(c.tensors["w"].WriteTo(io.Discard))) })
	if !testplatform.RaceEnabled { // the detector has a sync.Pool drop what it gets
		require.Less(t, memory, uint64(384<<20))
	}
	require.Less(t, v.read.Load(), int64(5*side*side))
}

// TestFarApart: elements that are far apart are read without the bytes between them, and repeated
// elements are read once, into a buffer of fixed size. The storages claim up to 2⁵⁹ bytes. Windows
// that overlap are read in one call.
func TestFarApart(t *testing.T) {
	const rows, columns = 24 << 10, 4000
	n := int64(1 << 57)
	if math.MaxInt == math.MaxInt32 {
		n = 1 << 28
	}
	for name, test := range map[string]struct {
		elements       int64
		shape, strides string
		want           int64 // number of bytes that are read
		calls          int64 // number of reads; 0 if any number is right
	}{
		"two":      {n, nums(2, 2), nums(n-2, 0), 2 * 4, 0},
		"four":     {n, nums(2, 2, 2, 2), nums(n/2, 0, n/4, 0), 4 * 4, 0},
		"overlap":  {n, nums(3, 2, 2), nums(n/4, n/4, 0), 6 * 4, 0},
		"expanded": {rows * columns, nums(rows, 4), nums(columns, 0), rows * 4, 0},
		"repeated": {n, nums(256, 2, 64<<10), nums(0, n-2, 0), 2 * 4 * 128, 0}, // the elements are read once for each MiB of the result
		"nearer":   {n, nums(64<<10, 2), nums(0, 64<<10), 2 * 4, 0},
		"windows":  {n, nums(3, 200, 300), nums(30_000, 100, 1), 4 * (2*30_000 + 199*100 + 300), 1},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVirtual(test.elements, test.shape, test.strides)
			c := must(openAll(v, v.size, ""))
			v.read.Store(0)
			v.calls.Store(0)
			w := c.tensors["w"]
			memory := testplatform.Allocated(func() { require.Equal(t, w.Size(), must(w.WriteTo(io.Discard))) })
			if !testplatform.RaceEnabled { // the detector has a sync.Pool drop what it gets
				require.Less(t, memory, uint64(64<<20))
			}
			require.LessOrEqual(t, v.read.Load(), test.want)
			if test.calls > 0 {
				require.Equal(t, test.calls, v.calls.Load())
			}
		})
	}
}

// TestJSONText: texts in metadata count with the length that they have as JSON. appendText writes
// long texts as json.Marshal does.
func TestJSONText(t *testing.T) {
	for _, text := range []string{"", "a\"b\\c\n\r\t\b\f\x00\x1f\x7f<>&", "\u2028\u2029é€𝄞", strings.Repeat("é€𝄞<a", 100_000)} {
		want := must(json.Marshal(text))
		require.Equal(t, len(want), jsonSize(text))
		require.True(t, bytes.Equal(want, appendText(nil, text, jsonSize(text))))
	}
	pickle := entries(str("w"), whole4, str("m"), "]X\x00\x00\x30\x01"+strings.Repeat("<", 0x1300000)+"a")
	require.Less(t, testplatform.Allocated(func() {
		require.ErrorContains(t, refusal(zipOf(t, "\x80\x02"+pickle+".")), "their names are too long")
	}), uint64(200<<20))
}

// TestOneOperation: the files of an index share one budget of text, and a large pickle is read only
// while no other pickle is read.
func TestOneOperation(t *testing.T) {
	files := fstest.MapFS{}
	weights := []string{}
	for _, shard := range []string{"a", "b", "c"} {
		pickle := "\x80\x02" + entries(str(shard), whole4, str("m"), "X\x00\x00\x40\x02"+strings.Repeat("t", 0x2400000)) + "."
		files[shard+".bin"] = &fstest.MapFile{Data: deflatedZip(t, pickle, 16)}
		weights = append(weights, fmt.Sprintf("%q:%q", shard, shard+".bin"))
	}
	index := func(weights []string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte(`{"weight_map":{` + strings.Join(weights, ",") + `}}`)}
	}
	files["two.bin.index.json"], files["three.bin.index.json"] = index(weights[:2]), index(weights)
	f := must(OpenFS(files, "two.bin.index.json"))
	require.NoError(t, f.Close())
	require.ErrorContains(t, errorOf(OpenFS(files, "three.bin.index.json")), "their names are too long")

	o := newOperation()
	var running, large atomic.Int64
	var all sync.WaitGroup
	for i := range 200 {
		all.Add(1)
		go func() {
			defer all.Done()
			isLarge := i%5 == 0
			s := &session{operation: o}
			if isLarge {
				s.start(smallPickle + 1)
				large.Add(1)
				require.EqualValues(t, 1, running.Add(1))
			} else {
				s.start(smallPickle)
				require.LessOrEqual(t, running.Add(1), int64(pickles))
				require.Zero(t, large.Load())
			}
			runtime.Gosched()
			running.Add(-1)
			if isLarge {
				large.Add(-1)
			}
			s.close()
			s.close() // has no effect
		}()
	}
	all.Wait()
}

// TestDepthOfCount: tensors are counted, and dicts with tensors are found, down to a maximum depth.
// Containers below it are not searched.
func TestDepthOfCount(t *testing.T) {
	value := any(&tensor{})
	dicts := any(&pickle.Dict{Entries: []pickle.Entry{{Key: "w", Value: value}}})
	for depth := 1; depth <= maxDepth+2; depth++ {
		value = &pickle.List{Items: []any{value}}
		want := 1
		if depth > maxDepth {
			want = 0
		}
		require.Equal(t, want, newContained().tensorsIn(value), "%d lists", depth)
		dicts = &pickle.Dict{Entries: []pickle.Entry{{Key: "k", Value: dicts}}}
		var found []string
		for d := range newContained().dicts(dicts, true) {
			found = append(found, d.key)
		}
		require.Equal(t, depth < maxDepth, len(found) > 0, "%d dicts", depth)
	}
}

// TestTextLimit: names and metadata may have exactly as many bytes as the limit.
func TestTextLimit(t *testing.T) {
	o := newOperation()
	require.NoError(t, o.charge(maxText))
	require.NoError(t, o.charge(0))
	require.ErrorIs(t, o.charge(1), errTooMuch)
	o = newOperation()
	o.visited = maxVisited - 1
	require.NoError(t, o.charge(0))
	require.ErrorIs(t, o.charge(0), errTooMuch)
	for size, want := range map[int]bool{maxText - len("__")*2 - perEntry: true, maxText: false} {
		f, err := flatten(dict{"", &pickle.Dict{Entries: []pickle.Entry{{Key: "__", Value: strings.Repeat("t", size)}}}}, newOperation())
		require.Equal(t, want, err == nil && len(f.metadata) == 1, size)
	}
}

// TestLongKeys: Keys lists a key only if it has fewer than maxPath bytes, not counting the last
// dot.
func TestLongKeys(t *testing.T) {
	long := func(n int) string {
		return "X" + string(binary.LittleEndian.AppendUint32(nil, uint32(n))) + strings.Repeat("k", n)
	}
	for sizes, want := range map[[2]int]int{{600, 399}: 2, {600, 400}: 1, {999, 0}: 2, {999, 1}: 1, {1000, 1}: 0, {1, 998}: 2} {
		data := zipOf(t, "\x80\x02"+entries(long(sizes[0]), entries(str("w"), whole4, long(sizes[1]), entries(str("w"), whole4)))+".")
		require.Len(t, must(Keys(bytes.NewReader(data), int64(len(data)))), want, sizes)
	}
}

// TestTurns: a pickle of up to a megabyte takes one of several slots, and a larger one takes all of
// them. For a legacy file, the size of the file counts, because its pickles may be that large. The
// slots are free again when the session is closed.
func TestTurns(t *testing.T) {
	padded := func(size int) string { // returns a pickle of this size
		p := dictOf(whole4)
		return p + strings.Repeat("\x00", size-len(p))
	}
	legacy := newVirtual(1, nums(1), nums(1))
	large := newVirtual(1<<18, nums(1), nums(1))
	for name, test := range map[string]struct {
		r    io.ReaderAt
		size int64
		want int
	}{
		"small":        {r: bytes.NewReader(zipOf(t, padded(1<<20))), want: 1},
		"large":        {r: bytes.NewReader(zipOf(t, padded(1<<20+1))), want: pickles},
		"legacy":       {r: legacy, size: legacy.size, want: 1},
		"large legacy": {r: large, size: large.size, want: pickles},
	} {
		if r, ok := test.r.(*bytes.Reader); ok {
			test.size = r.Size()
		}
		s := &session{operation: newOperation()}
		_, _, err := load(test.r, test.size, s)
		require.NoError(t, err, name)
		require.Len(t, s.slots, test.want, name)
		s.close()
		require.Empty(t, s.slots, name)
	}
}

// TestPickleLimit: a pickle may have exactly as many bytes as the limit. It is read through a
// buffer of fixed size.
func TestPickleLimit(t *testing.T) {
	for more, want := range []string{"", "a pickle of 100000001 bytes, more than 100000000"} {
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		w.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) { return flate.NewWriter(out, flate.BestSpeed) })
		content, block := must(w.Create("a/data.pkl")), make([]byte, 1<<20)
		n := copy(block, dictOf(whole4))
		for left := pickle.MaxSize + more; left > 0; left -= len(block) {
			must(content.Write(block[:min(left, len(block))]))
			clear(block[:n])
		}
		must(io.WriteString(must(w.Create("a/data/0")), "0123456789abcdef"))
		require.NoError(t, w.Close())
		var err error
		require.Less(t, testplatform.Allocated(func() { err = refusal(b.Bytes()) }), uint64(8<<20))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}
