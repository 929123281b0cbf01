package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// naiveTranspose moves elements of width bytes one by one.
func naiveTranspose(data []byte, width int, shape, dims []int) []byte {
	strides := make([]int, len(shape))
	n := width
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= shape[i]
	}
	out := make([]byte, 0, len(data))
	for number := 0; len(out) < len(data); number++ {
		at, rest := 0, number
		for i := len(dims) - 1; i >= 0; i-- {
			at += rest % shape[dims[i]] * strides[dims[i]]
			rest /= shape[dims[i]]
		}
		out = append(out, data[at:][:width]...)
	}
	return out
}

// permutations returns all orders of the numbers below n.
func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var all [][]int
	for _, p := range permutations(n - 1) {
		for i := range n {
			all = append(all, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return all
}

func permuted(shape, dims []int) []int {
	out := make([]int, len(dims))
	for i, dim := range dims {
		out[i] = shape[dim]
	}
	return out
}

func transposed(t testing.TB, x Tensor, dims ...int) Tensor {
	t.Helper()
	y, err := x.Transpose(dims...)
	require.NoError(t, err)
	require.Equal(t, x.DType(), y.DType())
	if len(dims) > 0 {
		require.Equal(t, permuted(x.Shape(), dims), y.Shape())
	}
	return y
}

// randomTensor returns a tensor of random bytes.
func randomTensor(t testing.TB, dtype DType, shape ...int) Tensor {
	t.Helper()
	n := 1
	for _, size := range shape {
		n *= size
	}
	random := rand.New(rand.NewPCG(uint64(n), uint64(dtype)))
	data := make([]byte, n*dtype.Bits()/8)
	for i := range data {
		data[i] = byte(random.Uint32())
	}
	x, err := NewTensor(dtype, shape, data)
	require.NoError(t, err)
	return x
}

// TestTransposeAgainstNaive transposes tensors of all dtypes and ranks in every order,
// from every kind of source.
func TestTransposeAgainstNaive(t *testing.T) {
	for dtype := BOOL; dtype <= U64; dtype++ {
		for _, shape := range [][]int{{}, {6}, {8, 4}, {2, 3, 4}, {3, 2, 5, 4}, {2, 1, 3, 4}} {
			if dtype != F32 && dtype != BF16 && dtype != F6_E2M3 && len(shape) == 4 && testing.Short() {
				continue
			}
			if dtype.Bits() < 8 && (len(shape) < 2 || slices.Contains(shape, 1)) {
				continue
			}
			for kind, x := range sourcesOf(t, randomTensor(t, dtype, shape...)) {
				data := appended[byte](t, x)
				for _, dims := range permutations(len(shape)) {
					last := len(shape) - 1
					sub := dtype.Bits() < 8
					if sub && dims[last] != last {
						_, err := x.Transpose(dims...)
						require.ErrorIs(t, err, errors.ErrUnsupported)
						continue
					}
					width, outer, order := dtype.Bits()/8, shape, dims
					if sub { // rows of whole bytes
						width, outer, order = shape[last]*dtype.Bits()/8, shape[:last], dims[:last]
					}
					y := transposed(t, x, dims...)
					require.Equal(t, naiveTranspose(data, width, outer, order), bytesOfTensor(t, y), "%s %v %v", kind, x, dims)
				}
			}
		}
	}
}

// TestTransposeReverses: without dims the order is that of numpy.transpose.
func TestTransposeReverses(t *testing.T) {
	x := counting(t, U32, 2, 3, 2)
	y := transposed(t, x)
	require.Equal(t, []int{2, 3, 2}, y.Shape())
	require.Equal(t, []uint32{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}, appended[uint32](t, y))
	require.Equal(t, x, transposed(t, y), "twice is once more the tensor")
}

// TestTransposeSizes transposes matrices of more than one tile, block and part, from
// every kind of source.
func TestTransposeSizes(t *testing.T) {
	for _, c := range []struct {
		dtype DType
		shape []int
		dims  []int
	}{
		{U8, []int{1025, 611}, []int{1, 0}},
		{BF16, []int{600, 1111}, []int{1, 0}},
		{F32, []int{521, 517}, []int{1, 0}},
		{F64, []int{515, 300}, []int{1, 0}},
		{U8, []int{3, 1030, 1100}, []int{0, 2, 1}},
		{F32, []int{7, 500, 601}, []int{0, 2, 1}},
		{F32, []int{4, 2, 1500, 601}, []int{1, 0, 3, 2}},
		{F32, []int{70, 80, 3, 3}, []int{2, 3, 1, 0}},
		{BF16, []int{70, 33, 64}, []int{1, 0, 2}},
		{F4, []int{70, 33, 64}, []int{1, 0, 2}},
	} {
		x := randomTensor(t, c.dtype, c.shape...)
		if x.Len() > 4<<20 && !testplatform.Long() || x.Len() > 1<<20 && raceEnabled {
			continue
		}
		width, outer, order := c.dtype.Bits()/8, c.shape, c.dims
		if width == 0 {
			width, outer, order = 32, c.shape[:2], c.dims[:2]
		}
		want := naiveTranspose(appended[byte](t, x), width, outer, order)
		for kind, source := range sourcesOf(t, x) {
			y := transposed(t, source, c.dims...)
			require.True(t, bytes.Equal(want, appended[byte](t, y)), "%s %v", kind, x)
			var out bytes.Buffer
			_, err := y.WriteTo(&out)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want, out.Bytes()), "%s %v written", kind, x)
			name := writeTemp(t, map[string]Tensor{"y": y, "z": y})
			f, err := Open(name)
			require.NoError(t, err)
			for _, name := range []string{"y", "z"} {
				written, err := f.Tensor(name)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, appended[byte](t, written)), "%s %v in a file", kind, x)
			}
			require.NoError(t, f.Close())
			p := make([]byte, len(want)/3)
			_, err = y.ReadAt(p, int64(len(want)/2))
			require.NoError(t, err)
			require.True(t, bytes.Equal(want[len(want)/2:][:len(p)], p), "%s %v window", kind, x)
		}
	}
}

// requireTransposedAsNaive compares slices of a transposed slice with their naive
// twins, from every kind of source.
func requireTransposedAsNaive(t testing.TB, x Tensor, sources map[string]Tensor, first []naiveRange, order uint64, second []naiveRange) {
	t.Helper()
	elements, shape, ok := naiveSlice(appended[uint32](t, x), x.Shape(), first)
	if !ok {
		return
	}
	dims := rand.New(rand.NewPCG(order, 1)).Perm(len(shape))
	whole := make([]uint32, len(elements))
	for i, b := range slices.Collect(slices.Chunk(naiveTranspose(bytesOf(elements), 4, shape, dims), 4)) {
		whole[i] = uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
	}
	want, wantShape, ok := naiveSlice(whole, permuted(shape, dims), second)
	for kind, source := range sources {
		y, err := source.Slice(rangeList(first)...)
		require.NoError(t, err)
		y, err = transposed(t, y, dims...).Slice(rangeList(second)...)
		require.Equal(t, ok, err == nil)
		if ok {
			require.Equal(t, wantShape, y.Shape())
			require.True(t, bytes.Equal(bytesOf(want), bytesOfTensor(t, y)), "%s %v %v %v %v", kind, x, first, dims, second)
		}
	}
}

func bytesOf(elements []uint32) []byte {
	b := make([]byte, 0, 4*len(elements))
	for _, e := range elements {
		b = append(b, byte(e), byte(e>>8), byte(e>>16), byte(e>>24))
	}
	return b
}

func rangeList(ranges []naiveRange) (list []Range) {
	for _, r := range ranges {
		list = append(list, r.Range())
	}
	return list
}

// TestTransposeOfSlices transposes random slices and slices the result.
func TestTransposeOfSlices(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	n := 60
	if testing.Short() || raceEnabled {
		n = 10
	}
	for range n {
		shape := make([]int, 1+random.IntN(4))
		for i := range shape {
			shape[i] = random.IntN(8)
		}
		x := counting(t, U32, shape...)
		sources := sourcesOf(t, x)
		for range 20 {
			first, second := make([]naiveRange, len(shape)), make([]naiveRange, random.IntN(len(shape)+1))
			for i, size := range shape {
				for first[i] = randomRange(random, size); ; first[i] = randomRange(random, size) {
					if _, ok := first[i].indices(size); ok {
						break
					}
				}
			}
			for i := range second {
				second[i] = randomRange(random, 4)
			}
			requireTransposedAsNaive(t, x, sources, first, random.Uint64(), second)
		}
	}
}

// FuzzTranspose transposes slices, slices the result, and compares it with the naive
// twin.
func FuzzTranspose(f *testing.F) {
	f.Add([]byte{3, 2, 4, 5}, uint64(1), []byte{1, 0, 2, 1, 2, 255, 0, 1, 0, 0, 0, 2})
	f.Add([]byte{6, 6}, uint64(2), []byte{1, 0, 5, 2})
	f.Fuzz(func(t *testing.T, dims []byte, order uint64, raw []byte) {
		shape := []int{}
		for _, d := range dims[:min(len(dims), 5)] {
			shape = append(shape, int(d)%7)
		}
		var ranges [2][]naiveRange
		for i := 0; len(raw) >= 4 && i < 2*len(shape); i++ {
			r := naiveRange{int(raw[0]) % 3, int(int8(raw[1])), int(int8(raw[2])), int(raw[3]) % 5}
			ranges[i/max(len(shape), 1)] = append(ranges[i/max(len(shape), 1)], r)
			raw = raw[4:]
		}
		x := counting(t, U32, shape...)
		reader, err := NewTensorAt(U32, shape, bytes.NewReader(appended[byte](t, x)))
		require.NoError(t, err)
		requireTransposedAsNaive(t, x, map[string]Tensor{"memory": x, "reader": reader}, ranges[0], order, ranges[1])
	})
}

// TestTransposeWindows reads every window of bytes of transposed tensors.
func TestTransposeWindows(t *testing.T) {
	x := randomTensor(t, U16, 3, 4, 3)
	for kind, source := range sourcesOf(t, x) {
		half, err := source.Slice(All(), Span(1, 3))
		require.NoError(t, err)
		converted, err := transposed(t, must(source.Bitcast(BF16))).Convert(F32)
		require.NoError(t, err)
		joined, err := Concat(1, transposed(t, source, 2, 1, 0), transposed(t, x, 2, 1, 0))
		require.NoError(t, err)
		for _, y := range []Tensor{transposed(t, source), transposed(t, source, 0, 2, 1), transposed(t, half), converted, joined} {
			all := appended[byte](t, y)
			step := 1 + len(all)/50
			if testing.Short() {
				step += 6
			}
			for off := 0; off <= len(all); off++ {
				for n := 0; n <= len(all)-off; n += step {
					p := bytes.Repeat([]byte{0xee}, n+1)
					_, err := y.ReadAt(p[:n], int64(off))
					if err != nil || !bytes.Equal(all[off:][:n], p[:n]) || p[n] != 0xee {
						require.FailNow(t, "wrong bytes", "%s %v: %d bytes at %d: %v", kind, y, n, off, err)
					}
				}
			}
		}
	}
}

func must(x Tensor, err error) Tensor {
	if err != nil {
		panic(err)
	}
	return x
}

// TestTransposeOfConcat: pieces are transposed one by one, and joined along the
// dimension in its new place.
func TestTransposeOfConcat(t *testing.T) {
	a, b := counting(t, U32, 3, 2, 4), randomTensor(t, U32, 3, 5, 4)
	for kind, a := range sourcesOf(t, a) {
		joined, err := Concat(1, a, b)
		require.NoError(t, err)
		for _, dims := range permutations(3) {
			y := transposed(t, joined, dims...)
			require.Equal(t, naiveTranspose(appended[byte](t, joined), 4, []int{3, 7, 4}, dims), bytesOfTensor(t, y), "%s %v", kind, dims)
			back := make([]int, 3)
			for i, dim := range dims {
				back[dim] = i
			}
			require.Equal(t, appended[byte](t, joined), bytesOfTensor(t, transposed(t, y, back...)))
		}
		for dim := range 3 { // of the result
			y := transposed(t, a, 2, 0, 1)
			var parts []Tensor
			for i := range y.Shape()[dim] {
				parts = append(parts, must(y.Part(dim, i, y.Shape()[dim])))
			}
			whole, err := Concat(dim, parts...)
			require.NoError(t, err)
			require.Equal(t, y, whole, "the parts are the tensor")
		}
	}
}

// TestTransposeComposes with what changes elements and shapes.
func TestTransposeComposes(t *testing.T) {
	x := counting(t, U32, 4, 6)
	y := transposed(t, x)
	_, err := View[uint32](y)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.Equal(t, appended[uint32](t, y), appended[uint32](t, must(y.Reshape(24))))
	floats := must(y.Bitcast(F32))
	require.Equal(t, appended[uint32](t, y), appended[uint32](t, floats))
	_, err = y.Bitcast(U16)
	require.EqualError(t, err, "safetensors: casting U32 [6,4] to U16: the elements of the last dimension are not adjacent")
	wide := must(transposed(t, must(x.Reshape(2, 2, 6)), 1, 0, 2).Bitcast(U16))
	require.Equal(t, []int{2, 2, 12}, wide.Shape())
	require.Equal(t, []uint32{0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17, 6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23}, appended[uint32](t, must(wide.Bitcast(U32))))

	halves := randomTensor(t, BF16, 5, 9)
	for kind, source := range sourcesOf(t, halves) {
		before := must(transposed(t, source).Convert(F32))
		after := transposed(t, must(source.Convert(F32)))
		want := naiveTranspose(appended[byte](t, must(halves.Convert(F32))), 4, []int{5, 9}, []int{1, 0})
		require.Equal(t, want, bytesOfTensor(t, before), kind)
		require.Equal(t, want, bytesOfTensor(t, after), kind)
		require.Equal(t, want, bytesOfTensor(t, must(must(after.Convert(F64)).Convert(F32))), kind)
	}
}

// TestTransposeContiguous checks which transposed tensors can be viewed.
func TestTransposeContiguous(t *testing.T) {
	for _, c := range []struct {
		rule       string
		shape      []int
		dims       []int
		contiguous bool
	}{
		{"nothing moves", []int{4, 6}, []int{0, 1}, true},
		{"a row becomes a column", []int{1, 6}, []int{1, 0}, true},
		{"a dimension of size 1 moves", []int{4, 1, 6}, []int{1, 0, 2}, true},
		{"two of them move", []int{1, 4, 1, 6}, []int{1, 3, 0, 2}, true},
		{"no elements", []int{4, 0, 6}, []int{2, 1, 0}, true},
		{"a scalar", []int{}, []int{}, true},
		{"a matrix", []int{4, 6}, []int{1, 0}, false},
		{"the leading dimensions", []int{4, 6, 2}, []int{1, 0, 2}, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			x := counting(t, U32, c.shape...)
			y := transposed(t, x, c.dims...)
			view, err := View[uint32](y)
			if c.contiguous {
				require.NoError(t, err)
				require.Equal(t, len(view), x.Len())
				_, err = y.Reshape(x.Len())
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errors.ErrUnsupported)
			}
		})
	}
}

func TestTransposeErrors(t *testing.T) {
	x := counting(t, F32, 4, 6)
	nibbles := randomTensor(t, F4, 4, 6)
	odd := randomTensor(t, F4, 2, 4, 3)
	for _, c := range []struct {
		rule string
		x    Tensor
		dims []int
		want string
	}{
		{"there are as many dims as dimensions", x, []int{0}, "safetensors: transposing F32 [4,6]: [0] is no permutation of its 2 dimensions"},
		{"no more", x, []int{1, 0, 2}, "safetensors: transposing F32 [4,6]: [1,0,2] is no permutation of its 2 dimensions"},
		{"each once", x, []int{1, 1}, "safetensors: transposing F32 [4,6]: [1,1] is no permutation of its 2 dimensions"},
		{"below the rank", x, []int{0, 2}, "safetensors: transposing F32 [4,6]: [0,2] is no permutation of its 2 dimensions"},
		{"not negative", x, []int{0, -1}, "safetensors: transposing F32 [4,6]: [0,-1] is no permutation of its 2 dimensions"},
		{"a scalar has none", counting(t, F32), []int{0}, "safetensors: transposing F32 []: [0] is no permutation of its 0 dimensions"},
		{"elements of half a byte stay", nibbles, nil, "safetensors: transposing F4 [4,6]: runs of 1 elements of 4 bits do not end on a byte boundary: unsupported operation"},
		{"rows fill bytes", odd, []int{1, 0, 2}, "safetensors: transposing F4 [2,4,3]: runs of 3 elements of 4 bits do not end on a byte boundary: unsupported operation"},
		{"the zero Tensor", Tensor{}, nil, "safetensors: transposing DType(0) []: the zero Tensor has no dtype and no data"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			y, err := c.x.Transpose(c.dims...)
			require.EqualError(t, err, c.want)
			require.Zero(t, y)
			require.Equal(t, c.x.DType() == F4, errors.Is(err, errors.ErrUnsupported))
		})
	}
}

// TestTransposeTie: transposed tensors share their data if the same elements are in
// the same order.
func TestTransposeTie(t *testing.T) {
	data := make([]uint32, 24)
	x := must(NewTensor(U32, []int{4, 1, 6}, data))
	same := must(must(NewTensor(U32, []int{4, 6}, data)).Reshape(1, 4, 6))
	square := must(NewTensor(U32, []int{4, 1, 4}, data[:16]))
	kept, noted := Tie(map[string]Tensor{
		"a": transposed(t, x), "b": transposed(t, x), "c": transposed(t, same, 2, 0, 1),
		"rows": transposed(t, square, 0, 1, 2), "columns": transposed(t, square),
	}, nil)
	require.Len(t, kept, 3)
	require.Equal(t, map[string]string{"b": "a", "c": "a"}, noted)
}

// TestTransposeReads: an operation reads each byte of a file once, in large reads. A
// window costs what it has.
func TestTransposeReads(t *testing.T) {
	x := randomTensor(t, F32, 3, 1500, 1000)
	r := &recordingReader{ReaderAt: bytes.NewReader(appended[byte](t, x))}
	y := transposed(t, must(NewTensorAt(F32, x.Shape(), r)), 0, 2, 1)
	for way, read := range map[string]func() error{
		"Append":    func() error { _, err := Append[float32](nil, y); return err },
		"WriteTo":   func() error { _, err := y.WriteTo(io.Discard); return err },
		"Write":     func() error { return Write(io.Discard, map[string]Tensor{"y": y}, nil) },
		"WriteFile": func() error { return WriteFile(t.TempDir()+"/x", map[string]Tensor{"y": y}, nil) },
	} {
		r.calls, r.bytes = 0, 0
		require.NoError(t, read())
		require.Equal(t, x.Size(), r.bytes, way)
		require.LessOrEqual(t, r.calls, 6, way)
	}
	r.calls, r.bytes = 0, 0
	_, err := y.ReadAt(make([]byte, 3*1500*4), 10*1500*4) // three rows, which were columns
	require.NoError(t, err)
	require.LessOrEqual(t, r.bytes, int64(1500*4000), "one matrix")
	r.calls, r.bytes = 0, 0
	_, err = y.ReadAt(make([]byte, 8), 4)
	require.NoError(t, err)
	require.LessOrEqual(t, r.bytes, int64(2*4000))
}

// TestTransposeFailingReader fails the reader after every number of bytes.
func TestTransposeFailingReader(t *testing.T) {
	x := counting(t, U32, 4, 5, 3)
	data := appended[byte](t, x)
	for n := range int64(len(data)) {
		for _, dims := range [][]int{{2, 1, 0}, {0, 2, 1}, {1, 0, 2}} {
			r := &failingReader{ReaderAt: bytes.NewReader(data), left: n}
			y := transposed(t, must(NewTensorAt(U32, x.Shape(), r)), dims...)
			got, err := Append([]uint32{1}, y)
			require.ErrorIs(t, err, errReader)
			require.Equal(t, []uint32{1}, got)
			r.left = n
			var out bytes.Buffer
			written, err := y.WriteTo(&out)
			require.ErrorIs(t, err, errReader)
			require.EqualValues(t, out.Len(), written)
			r.left = n
			_, err = y.ReadAt(make([]byte, len(data)), 0)
			require.ErrorIs(t, err, errReader)
			if n%16 > 0 {
				continue
			}
			r.left = n
			dir := t.TempDir()
			require.ErrorIs(t, WriteFile(dir+"/x", map[string]Tensor{"x": y}, nil), errReader)
			requireEmptyDir(t, dir)
		}
	}
}

// TestTransposeClosed reads transposed tensors of a closed File.
func TestTransposeClosed(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"a": counting(t, U32, 4, 4)})
	for way, open := range openedBy {
		f := open(t, name)
		a, err := f.Tensor("a")
		require.NoError(t, err)
		y := transposed(t, a)
		require.NoError(t, f.Close())
		_, err = Append[uint32](nil, y)
		require.ErrorIs(t, err, fs.ErrClosed, way)
		_, err = y.WriteTo(io.Discard)
		require.ErrorIs(t, err, fs.ErrClosed, way)
		_, err = y.ReadAt(make([]byte, 64), 0)
		require.ErrorIs(t, err, fs.ErrClosed, way)
		_, err = View[uint32](y)
		require.ErrorIs(t, err, fs.ErrClosed, way)
		require.ErrorIs(t, Write(io.Discard, map[string]Tensor{"y": y}, nil), fs.ErrClosed, way)
	}
}

// TestTransposeManyDimensions: ranks that a file may claim cost no more than their
// elements.
func TestTransposeManyDimensions(t *testing.T) {
	ones := slices.Repeat([]int{1}, 1<<20)
	x := must(NewTensor(U8, ones, []byte{7}))
	require.Less(t, allocated(func() { x = transposed(t, x) }), uint64(64<<20))
	require.Equal(t, []byte{7}, appended[byte](t, x))

	twos := slices.Repeat([]int{2}, 16)
	for kind, source := range sourcesOf(t, randomTensor(t, U16, twos...)) {
		y := transposed(t, transposed(t, source))
		require.Equal(t, source, y, kind)
		y = transposed(t, source)
		dims := make([]int, 16)
		for i := range dims {
			dims[i] = 15 - i
		}
		require.Equal(t, naiveTranspose(appended[byte](t, source), 2, twos, dims), bytesOfTensor(t, y), kind)
	}
}

// TestTransposeHuge reads windows of a transposed tensor of 16 TiB.
func TestTransposeHuge(t *testing.T) {
	const dim = 1 << 22
	head := fileOf(fmt.Sprintf(`{"a":{"dtype":"U8","shape":[%d,%d],"data_offsets":[0,%d]}}`, dim, dim, int64(dim*dim)), 0)
	f, err := NewFile(hugeReader{head}, int64(len(head))+dim*dim)
	require.NoError(t, err)
	value := func(at int64) byte { return byte(at ^ at>>8 ^ at>>16 ^ at>>32 ^ at>>40) }
	y := transposed(t, must(f.Tensor("a")))
	p := make([]byte, 3)
	_, err = y.ReadAt(p, (dim-1)*dim+1)
	require.NoError(t, err)
	require.Equal(t, []byte{value(2*dim - 1), value(3*dim - 1), value(4*dim - 1)}, p)
	corner := must(y.Slice(Span(-2, dim), Span(dim-2, dim)))
	require.Equal(t, []byte{value((dim-1)*dim - 2), value(dim*dim - 2), value((dim-1)*dim - 1), value(dim*dim - 1)}, appended[byte](t, corner))
	_, err = Append[byte](nil, y)
	require.Error(t, err)
}

// TestRangesInOrder joins slices that interleave and overlap: a RangeReader is asked
// for ranges in increasing order even so.
func TestRangesInOrder(t *testing.T) {
	x := counting(t, U32, 1, 20)
	r := &rangesReader{recordingReader: recordingReader{ReaderAt: bytes.NewReader(appended[byte](t, x))}}
	y := must(NewTensorAt(U32, x.Shape(), r))
	for _, step := range []int{1, 2} {
		of := func(x Tensor, first int) Tensor { return must(x.Slice(All(), Span(first, first+4*step+1).By(step))) }
		joined := must(Concat(0, of(y, 0), of(y, 3)))
		require.Equal(t, appended[uint32](t, must(Concat(0, of(x, 0), of(x, 3)))), appended[uint32](t, joined))
	}
}
