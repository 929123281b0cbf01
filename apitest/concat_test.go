package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// bytesOfTensor returns the bytes of a tensor, read in four ways that must agree.
func bytesOfTensor(t testing.TB, x Tensor) []byte {
	t.Helper()
	all := appended[byte](t, x)
	var written bytes.Buffer
	n, err := x.WriteTo(&written)
	require.NoError(t, err)
	require.EqualValues(t, len(all), n)
	require.True(t, bytes.Equal(all, written.Bytes()), "WriteTo")
	// A window that starts and ends anywhere.
	random := rand.New(rand.NewPCG(uint64(len(all)), 1))
	for range 4 {
		off := random.Int64N(int64(len(all)) + 1)
		p := make([]byte, random.Int64N(int64(len(all))-off+1))
		got, err := x.ReadAt(p, off)
		require.NoError(t, err)
		require.Equal(t, len(p), got)
		require.True(t, bytes.Equal(all[off:][:len(p)], p), "ReadAt %d bytes at %d", len(p), off)
	}
	return all
}

// sourcesOf returns tensors of the same elements from sources of every kind.
func sourcesOf(t testing.TB, x Tensor) map[string]Tensor {
	data := appended[byte](t, x)
	file := writeTemp(t, map[string]Tensor{"x": x, "other": counting(t, U32, 3)})
	of := func(open func(testing.TB, string) *File) Tensor {
		f := open(t, file)
		t.Cleanup(func() { f.Close() })
		y, err := f.Tensor("x")
		require.NoError(t, err)
		return y
	}
	must := func(y Tensor, err error) Tensor {
		require.NoError(t, err)
		return y
	}
	computed, _ := counted(t, x)
	return map[string]Tensor{
		"slice":    must(NewTensor(x.DType(), x.Shape(), data)),
		"mapped":   of(openedBy["Open"]),
		"reader":   must(NewTensorAt(x.DType(), x.Shape(), bytes.NewReader(data))),
		"ranges":   must(NewTensorAt(x.DType(), x.Shape(), &rangesReader{recordingReader: recordingReader{ReaderAt: bytes.NewReader(data)}})),
		"computed": computed,
	}
}

// TestConcatOfParts cuts tensors of every rank along every dimension and joins the
// parts: the result is the tensor again, from one source without a seam.
func TestConcatOfParts(t *testing.T) {
	for _, shape := range [][]int{{12}, {4, 6}, {6, 1, 4}, {2, 6, 4, 2}} {
		for kind, x := range sourcesOf(t, counting(t, U32, shape...)) {
			for dim, size := range shape {
				for n := 1; n <= size; n++ {
					if size%n != 0 {
						continue
					}
					parts := make([]Tensor, n)
					for i := range parts {
						var err error
						parts[i], err = x.Part(dim, i, n)
						require.NoError(t, err)
					}
					joined, err := Concat(dim, parts...)
					require.NoError(t, err)
					require.Equal(t, x, joined, "%s %v cut along %d into %d", kind, shape, dim, n)
				}
			}
		}
	}
}

// TestConcatOfPartsOfSlices joins parts of slices, whose elements are strided.
func TestConcatOfPartsOfSlices(t *testing.T) {
	x := counting(t, U32, 8, 9, 10)
	for _, ranges := range [][]Range{
		{Span(1, 7), Span(2, 8), Span(1, 9)}, {All().By(2), All().By(3), All().By(2)}, {At(3), Span(0, 8), All()}, {All(), At(-1), Span(2, 8)},
	} {
		part, err := x.Slice(ranges...)
		require.NoError(t, err)
		for dim, size := range part.Shape() {
			parts := []Tensor{}
			for i := range size {
				if size%2 == 0 && i < 2 {
					p, err := part.Part(dim, i, 2)
					require.NoError(t, err)
					parts = append(parts, p)
				}
			}
			if len(parts) == 0 {
				continue
			}
			joined, err := Concat(dim, parts...)
			require.NoError(t, err)
			if _, err = View[uint32](joined); err != nil {
				require.NotContains(t, err.Error(), "it is joined from several tensors")
			}
			require.Equal(t, part.Shape(), joined.Shape())
			require.Equal(t, bytesOfTensor(t, part), bytesOfTensor(t, joined))
		}
	}
}

// naiveConcat joins the bytes of tensors of whole-byte elements, row by row.
func naiveConcat(t testing.TB, dim int, tensors []Tensor) []byte {
	var out []byte
	outer := 1
	for _, size := range tensors[0].Shape()[:dim] {
		outer *= size
	}
	for row := range outer {
		for _, x := range tensors {
			b := appended[byte](t, x)
			width := len(b) / outer
			out = append(out, b[row*width:][:width]...)
		}
	}
	return out
}

// TestConcatAgainstNaive joins pieces from any mixture of sources, some of them
// sliced, converted or joined themselves, and slices the result.
func TestConcatAgainstNaive(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	n := 150
	if testing.Short() {
		n = 30
	}
	for range n {
		rank := 1 + random.IntN(3)
		shape := make([]int, rank)
		for i := range shape {
			shape[i] = 1 + random.IntN(4)
		}
		dim := random.IntN(rank)
		var tensors []Tensor
		for range 1 + random.IntN(4) {
			shape[dim] = random.IntN(5)
			tensors = append(tensors, randomPiece(t, random, shape))
		}
		joined, err := Concat(dim, tensors...)
		require.NoError(t, err)
		want := naiveConcat(t, dim, tensors)
		require.True(t, bytes.Equal(want, bytesOfTensor(t, joined)), "%v along %d", tensors, dim)

		nested, err := Concat(dim, joined, tensors[0])
		require.NoError(t, err)
		require.True(t, bytes.Equal(naiveConcat(t, dim, append(tensors, tensors[0])), bytesOfTensor(t, nested)))

		whole, err := NewTensor(joined.DType(), joined.Shape(), want)
		require.NoError(t, err)
		ranges := make([]Range, rank)
		for i, size := range joined.Shape() {
			ranges[i] = randomRange(random, size).Range()
		}
		part, err := joined.Slice(ranges...)
		wantPart, wantErr := whole.Slice(ranges...)
		if wantErr != nil {
			require.EqualError(t, err, wantErr.Error())
			continue
		}
		require.NoError(t, err, "%v %v", joined, ranges)
		require.Equal(t, wantPart.Shape(), part.Shape(), "%v %v", joined, ranges)
		require.True(t, bytes.Equal(bytesOfTensor(t, wantPart), bytesOfTensor(t, part)), "%v %v", joined, ranges)
		if cast, err := part.Bitcast(I16); err == nil { // none of the pieces is converted
			require.True(t, bytes.Equal(bytesOfTensor(t, wantPart), bytesOfTensor(t, cast)))
		}
	}
}

// randomPiece returns a BF16 tensor of a shape, from any kind of source.
func randomPiece(t testing.TB, random *rand.Rand, shape []int) Tensor {
	n := 1
	for _, size := range shape {
		n *= size
	}
	values := make([]float32, n)
	for i := range values {
		values[i] = float32(random.IntN(1000))
	}
	x, err := NewTensor(F32, shape, values)
	require.NoError(t, err)
	if random.IntN(2) == 0 { // BF16 itself, else converted as it is read
		x, err = x.Convert(BF16)
		require.NoError(t, err)
		x, err = NewTensor(BF16, shape, appended[uint16](t, x))
		require.NoError(t, err)
	}
	for kind, y := range sourcesOf(t, x) {
		_ = kind
		x = y // the order of a map is random
	}
	x, err = x.Convert(BF16)
	require.NoError(t, err)
	return x
}

// TestConcatWide has rows from narrow to wider than a block, read directly and in
// columns.
func TestConcatWide(t *testing.T) {
	sizes := []struct{ rows, left, right int }{{3000, 1, 3}, {700, 2000, 5}, {3, 270_000, 100}, {40, 5000, 70_000}, {3, 900_000, 2_500_000}}
	if !testplatform.Long() {
		sizes = sizes[:3]
	}
	for _, c := range sizes {
		a := counting(t, U32, c.rows, c.left)
		b := counting(t, F32, c.rows, c.right)
		b, err := b.Bitcast(U32)
		require.NoError(t, err)
		joined, err := Concat(1, a, b)
		require.NoError(t, err)
		want := naiveConcat(t, 1, []Tensor{a, b})
		require.True(t, bytes.Equal(want, bytesOfTensor(t, joined)), c)
		name := filepath.Join(t.TempDir(), "wide.safetensors")
		require.NoError(t, WriteFile(name, map[string]Tensor{"x": joined}, nil))
		f, err := Load(name)
		require.NoError(t, err)
		x, err := f.Tensor("x")
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, appended[byte](t, x)), c)
	}
}

// TestConcatOfFiles writes long pieces of every kind joined along the first
// dimension, which are lent or read, with seams within and between the blocks.
func TestConcatOfFiles(t *testing.T) {
	var pieces []Tensor
	for i, rows := range []int{300, 2100, 1, 777, 1900} {
		x := counting(t, U32, rows, 1024)
		for _, kind := range [][]string{{"mapped", "computed"}, {"reader", "slice"}, {"computed", "ranges"}}[i%3] {
			pieces = append(pieces, sourcesOf(t, x)[kind])
		}
	}
	joined, err := Concat(0, pieces...)
	require.NoError(t, err)
	want := naiveConcat(t, 0, pieces)
	name := writeTemp(t, map[string]Tensor{"x": joined})
	f, err := Load(name)
	require.NoError(t, err)
	x, err := f.Tensor("x")
	require.NoError(t, err)
	require.True(t, bytes.Equal(want, appended[byte](t, x)))
	require.True(t, bytes.Equal(want, bytesOfTensor(t, joined)))
}

func TestConcatSubByte(t *testing.T) {
	x, err := NewTensor(F4, []int{2, 2}, []byte{0x21, 0x43})
	require.NoError(t, err)
	y, err := NewTensor(F4, []int{2, 4}, []byte{0x65, 0x07, 0x10, 0x32})
	require.NoError(t, err)
	joined, err := Concat(1, x, y)
	require.NoError(t, err)
	require.Equal(t, []byte{0x21, 0x65, 0x07, 0x43, 0x10, 0x32}, bytesOfTensor(t, joined))
	wide, err := joined.Convert(BF16)
	require.NoError(t, err)
	require.Equal(t, appended[float32](t, joined), appended[float32](t, wide))
	bytesOfTensor(t, wide)

	odd, err := NewTensor(F4, []int{2, 3}, []byte{1, 2, 3})
	require.NoError(t, err)
	_, err = Concat(1, odd, y)
	require.ErrorContains(t, err, "rows of piece 0, F4 [2,3], have 3 elements of 4 bits, which do not fill whole bytes")
	joined, err = Concat(0, odd, odd)
	require.NoError(t, err, "a single row may end anywhere in its last but whole byte")
	require.Equal(t, []byte{1, 2, 3, 1, 2, 3}, bytesOfTensor(t, joined))
}

func TestConcatRefuses(t *testing.T) {
	x := counting(t, U32, 2, 3)
	huge, err := NewTensor[byte](U8, []int{0, math.MaxInt}, nil)
	require.NoError(t, err)
	for _, c := range []struct {
		rule    string
		dim     int
		tensors []Tensor
		want    string
	}{
		{"at least one tensor", 0, nil, "concatenating along dimension 0: there are no tensors"},
		{"one dtype", 0, []Tensor{x, counting(t, F32, 2, 3)}, "tensor 1 is F32 [2,3], tensor 0 is U32 [2,3]: they differ"},
		{"one rank", 0, []Tensor{x, counting(t, U32, 3)}, "they differ"},
		{"the other dimensions", 0, []Tensor{x, counting(t, U32, 2, 4)}, "they differ"},
		{"a dimension of the tensors", 2, []Tensor{x}, "U32 [2,3] has rank 2"},
		{"no negative dimension", -1, []Tensor{x}, "has rank 2"},
		{"no scalars", 0, []Tensor{counting(t, U32)}, "U32 [] has rank 0"},
		{"valid tensors", 0, []Tensor{x, {}}, "tensor 1: the zero Tensor"},
		{"no overflow", 1, []Tensor{huge, huge}, "the dimension overflows"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := Concat(c.dim, c.tensors...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestPartRefuses(t *testing.T) {
	x := counting(t, U32, 4, 6)
	for _, c := range []struct {
		rule      string
		dim, i, n int
		want      string
	}{
		{"n divides the dimension", 1, 0, 4, "safetensors: part 0 of 4 along dimension 1 of U32 [4,6]: 4 does not divide the size 6"},
		{"a dimension of the tensor", 2, 0, 2, "it has rank 2"},
		{"no negative dimension", -1, 0, 2, "it has rank 2"},
		{"i below n", 0, 2, 2, "there is no such part"},
		{"no negative i", 0, -1, 2, "there is no such part"},
		{"at least one part", 0, 0, 0, "there is no such part"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := x.Part(c.dim, c.i, c.n)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestNoViewOfJoined checks that View refuses what Append reads.
func TestNoViewOfJoined(t *testing.T) {
	x := counting(t, U32, 2, 3)
	joined, err := Concat(0, x, x)
	require.NoError(t, err)
	_, err = View[uint32](joined)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "it is joined from several tensors")
	_, err = View[uint32](must(joined.Reshape(12)))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	empty, err := Concat(0, counting(t, U32, 0, 3), counting(t, U32, 0, 3))
	require.NoError(t, err)
	require.Equal(t, []int{0, 3}, empty.Shape())
	require.Empty(t, bytesOfTensor(t, empty))
}

func TestReadAtIsAReaderAt(t *testing.T) {
	x := counting(t, U32, 5)
	n, err := x.ReadAt(make([]byte, 8), 16)
	require.Equal(t, 4, n)
	require.Equal(t, io.EOF, err)
	n, err = x.ReadAt(make([]byte, 8), 1<<40)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
	n, err = x.ReadAt(nil, 20)
	require.Zero(t, n)
	require.NoError(t, err)
	_, err = x.ReadAt(make([]byte, 1), -1)
	require.ErrorContains(t, err, "negative offset")
	all, err := io.ReadAll(io.NewSectionReader(x, 0, x.Size()))
	require.NoError(t, err)
	require.Equal(t, appended[byte](t, x), all)

	// A tensor is a source of another one.
	y, err := NewTensorAt(U32, []int{5}, x)
	require.NoError(t, err)
	require.Equal(t, []uint32{0, 1, 2, 3, 4}, appended[uint32](t, y))
}

// TestReaderFaults checks what the error says of a reader that fails.
func TestReaderFaults(t *testing.T) {
	for _, c := range []struct {
		rule string
		r    io.ReaderAt
		is   error
		want string
	}{
		{"it ends early", bytes.NewReader(make([]byte, 10)), io.ErrUnexpectedEOF, "reading 16 bytes at byte 0 of the file: unexpected EOF"},
		{"it fails", &failingReader{ReaderAt: bytes.NewReader(make([]byte, 16))}, errReader, "reading 16 bytes at byte 0"},
		{"it lies about n", readerAtFunc(func(p []byte, _ int64) (int, error) { return len(p) + 1, nil }), nil, "read 17 of 16 bytes"},
		{"it returns a negative n", readerAtFunc(func(p []byte, _ int64) (int, error) { return -1, nil }), nil, "read -1 of 16 bytes"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			x, err := NewTensorAt(U32, []int{4}, c.r)
			require.NoError(t, err)
			_, err = Append[uint32](nil, x)
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
	_, err := NewTensorAt(U32, []int{4}, nil)
	require.ErrorContains(t, err, "is nil")
	_, err = NewTensorAt(U32, []int{-1}, os.Stdin)
	require.ErrorContains(t, err, "negative dimension")
}

type readerAtFunc func([]byte, int64) (int, error)

func (f readerAtFunc) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

func BenchmarkConcat(b *testing.B) {
	const rows, columns = 4096, 16384
	name := writeTemp(b, map[string]Tensor{"x": counting(b, F32, rows, columns)})
	f, err := Open(name)
	require.NoError(b, err)
	defer f.Close()
	x, err := f.Tensor("x")
	require.NoError(b, err)
	dst := make([]float32, 0, rows*columns)
	run := func(name string, x Tensor) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(x.Size())
			for b.Loop() {
				_, err := Append(dst[:0], x)
				require.NoError(b, err)
			}
		})
	}
	run("whole", x)
	for _, n := range []int{2, 8} {
		for dim := range 2 {
			var parts, files []Tensor
			for i := range n {
				part, err := x.Part(dim, i, n)
				require.NoError(b, err)
				parts = append(parts, part)
				g, err := Open(writeTemp(b, map[string]Tensor{"x": part}))
				require.NoError(b, err)
				defer g.Close()
				own, err := g.Tensor("x")
				require.NoError(b, err)
				files = append(files, own)
			}
			joined, err := Concat(dim, parts...)
			require.NoError(b, err)
			run(fmt.Sprintf("dim=%d/%d/parts", dim, n), joined)
			joined, err = Concat(dim, files...)
			require.NoError(b, err)
			run(fmt.Sprintf("dim=%d/%d/files", dim, n), joined)
		}
	}
}

// TestConcatInAnyOrder joins rows and columns of one tensor in every order, each of
// them once or several times: only adjacent ones in their order become one.
func TestConcatInAnyOrder(t *testing.T) {
	x := counting(t, U32, 3, 3)
	for dim := range 2 {
		for n := range 27 {
			order := []int{n / 9, n / 3 % 3, n % 3}
			var pieces []Tensor
			want := make([]uint32, 9)
			for to, from := range order {
				ranges := []Range{All(), All()}
				ranges[dim] = Span(from, from+1)
				piece, err := x.Slice(ranges...)
				require.NoError(t, err)
				pieces = append(pieces, piece)
				for k := range 3 {
					if dim == 0 {
						want[3*to+k] = uint32(3*from + k)
					} else {
						want[3*k+to] = uint32(3*k + from)
					}
				}
			}
			joined, err := Concat(dim, pieces...)
			require.NoError(t, err)
			require.Equal(t, []int{3, 3}, joined.Shape())
			require.Equal(t, want, appended[uint32](t, joined), order)
			_, err = View[uint32](joined)
			require.Equal(t, slices.Equal(order, []int{0, 1, 2}), err == nil, order)
		}
	}
}

// TestSliceNothingOfJoined selects no elements of a joined tensor, at each place of
// each dimension.
func TestSliceNothingOfJoined(t *testing.T) {
	x, err := Concat(1, counting(t, U32, 2, 3), counting(t, U32, 2, 1), counting(t, U32, 2, 2))
	require.NoError(t, err)
	for i := range 7 {
		y, err := x.Slice(All(), Span(i, i))
		require.NoError(t, err)
		require.Equal(t, []int{2, 0}, y.Shape())
		require.Equal(t, U32, y.DType())
		require.Empty(t, appended[uint32](t, y))
	}
	for i := range 3 {
		y, err := x.Slice(Span(i, i), Span(1, 5))
		require.NoError(t, err)
		require.Equal(t, []int{0, 4}, y.Shape())
		require.Empty(t, appended[uint32](t, y))
	}
}

// TestLongStepsOfJoined selects by steps up to the largest: a joined tensor has the
// elements that a whole one has.
func TestLongStepsOfJoined(t *testing.T) {
	whole := counting(t, U32, 6)
	joined, err := Concat(0, counting(t, U32, 2), mustSlice(t, whole, Span(2, 5)), mustSlice(t, whole, Span(5, 6)))
	require.NoError(t, err)
	for first := range 7 {
		for _, step := range []int{4, 5, 6, 7, math.MaxInt / 2, math.MaxInt - 1, math.MaxInt} {
			r := Span(first, 6).By(step)
			want, got := mustSlice(t, whole, r), mustSlice(t, joined, r)
			require.Equal(t, want.Shape(), got.Shape(), r)
			require.Equal(t, appended[uint32](t, want), appended[uint32](t, got), r)
		}
	}
}

func mustSlice(t *testing.T, x Tensor, ranges ...Range) Tensor {
	t.Helper()
	part, err := x.Slice(ranges...)
	require.NoError(t, err)
	return part
}

// TestJoinedReadsFail has a reader that fails in one read only: whichever it is, the
// read of the joined tensor fails.
func TestJoinedReadsFail(t *testing.T) {
	const rows = 4
	left, err := NewTensor(U8, []int{rows, 8}, bytes.Repeat([]byte("l"), 8*rows))
	require.NoError(t, err)
	for off := range int64(3 * 16) {
		for failing := 1; ; failing++ {
			r := &onceFailing{ReaderAt: bytes.NewReader(bytes.Repeat([]byte("r"), 8*rows)), at: failing}
			right, err := NewTensorAt(U8, []int{rows, 8}, r)
			require.NoError(t, err)
			joined, err := Concat(1, left, right)
			require.NoError(t, err)
			p := make([]byte, 16)
			n, err := joined.ReadAt(p, off)
			if r.at > 0 { // it has read it all without that many reads
				require.NoError(t, err)
				require.Equal(t, 16, n)
				for i, c := range p {
					require.Equal(t, "lr"[(int(off)+i)/8%2], c)
				}
				break
			}
			require.ErrorIs(t, err, errReader, "%d, %d", off, failing)
		}
	}
}

// A onceFailing reader fails in the at-th read.
type onceFailing struct {
	io.ReaderAt
	at int
}

func (r *onceFailing) ReadAt(b []byte, off int64) (int, error) {
	if r.at--; r.at == 0 {
		return 0, errReader
	}
	return r.ReaderAt.ReadAt(b, off)
}

// TestJoinedComputedClosesFiles joins a tensor of a file with one whose func closes
// that file: nobody waits for anybody, and the error says that it is closed.
func TestJoinedComputedClosesFiles(t *testing.T) {
	name := writeTemp(t, map[string]Tensor{"x": counting(t, U32, 64)})
	for way, open := range openedBy {
		f := open(t, name)
		x, err := f.Tensor("x")
		require.NoError(t, err)
		closing, err := NewTensorFunc(U32, []int{64}, func([]uint32) error { return f.Close() })
		require.NoError(t, err)
		joined, err := Concat(0, closing, x)
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err = Append[byte](nil, joined)
		}()
		requireSoon(t, done)
		require.ErrorIs(t, err, fs.ErrClosed, way)
	}
}

// TestConcatEverything joins any three ranges of one tensor, also if two of them are
// joined already: what is adjacent and what is not, in every combination.
func TestConcatEverything(t *testing.T) {
	const size = 5
	x := counting(t, U32, size)
	type piece struct {
		Tensor
		data []uint32
	}
	var pieces []piece
	for start := range size {
		for stop := start + 1; stop <= size; stop++ {
			for step := 1; step <= 2 && step <= stop-start; step++ {
				p, err := x.Slice(Span(start, stop).By(step))
				require.NoError(t, err)
				pieces = append(pieces, piece{p, appended[uint32](t, p)})
			}
		}
	}
	concat := func(tensors ...Tensor) Tensor {
		joined, err := Concat(0, tensors...)
		require.NoError(t, err)
		return joined
	}
	for _, a := range pieces {
		for _, b := range pieces {
			for _, c := range pieces {
				want := slices.Concat(a.data, b.data, c.data)
				for _, joined := range []Tensor{
					concat(a.Tensor, b.Tensor, c.Tensor),
					concat(a.Tensor, concat(b.Tensor, c.Tensor)),
					concat(concat(a.Tensor, b.Tensor), c.Tensor),
				} {
					if got := appended[uint32](t, joined); !slices.Equal(want, got) {
						require.Equal(t, want, got)
					}
				}
			}
		}
	}
}

// TestWideJoinedWritesFail writes long pieces, one of which cannot be read: the file
// is not written.
func TestWideJoinedWritesFail(t *testing.T) {
	const size = 400_000
	for failing := range 3 {
		pieces := make([]Tensor, 3)
		for i := range pieces {
			r := &failingReader{ReaderAt: bytes.NewReader(make([]byte, size)), left: size}
			if i == failing {
				r.left = size / 2
			}
			var err error
			pieces[i], err = NewTensorAt(U8, []int{size}, r)
			require.NoError(t, err)
		}
		joined, err := Concat(0, pieces...)
		require.NoError(t, err)
		dir := t.TempDir()
		require.ErrorIs(t, WriteFile(filepath.Join(dir, "x"), map[string]Tensor{"x": joined}, nil), errReader)
		requireEmptyDir(t, dir)
	}
}

// TestPartsOfTwo joins the first half of one tensor with the second half of another:
// where they are says nothing about what they are of.
func TestPartsOfTwo(t *testing.T) {
	constant := func(c byte) []Tensor {
		stored, err := NewTensor(U8, []int{4}, bytes.Repeat([]byte{c}, 4))
		require.NoError(t, err)
		computed, err := NewTensorFunc(U8, []int{4}, func(dst []byte) error {
			copy(dst, bytes.Repeat([]byte{c}, 4))
			return nil
		})
		require.NoError(t, err)
		return []Tensor{stored, computed}
	}
	for i, x := range constant(1) {
		for k, y := range constant(2) {
			joined, err := Concat(0, mustSlice(t, x, Span(0, 2)), mustSlice(t, y, Span(2, 4)))
			require.NoError(t, err)
			require.Equal(t, []byte{1, 1, 2, 2}, appended[byte](t, joined), "%d %d", i, k)
		}
	}

	// The halves of one tensor, one of them rounded twice.
	x, err := NewTensor(F32, []int{2}, []float32{1e9, 1e9})
	require.NoError(t, err)
	once, err := mustSlice(t, x, Span(0, 1)).Convert(BF16)
	require.NoError(t, err)
	twice, err := mustSlice(t, x, Span(1, 2)).Convert(F16)
	require.NoError(t, err)
	twice, err = twice.Convert(BF16)
	require.NoError(t, err)
	joined, err := Concat(0, once, twice)
	require.NoError(t, err)
	require.Equal(t, []uint16{0x4e6e, 0x7f80}, appended[uint16](t, joined))
}
