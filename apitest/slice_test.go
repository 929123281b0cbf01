package apitest_test

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// TestElementsOfBits slices and joins elements of 4 and 6 bits, which stay in the
// bytes that they share.
func TestElementsOfBits(t *testing.T) {
	x := must(NewTensor(F4, []int{2, 6}, []byte{0x10, 0x32, 0x54, 0x76, 0x98, 0xba}))
	odd := must(NewTensor(F4, []int{2, 3}, []byte{1, 2, 3}))
	rows := must(NewTensor(F4, []int{4, 3, 3}, []byte{0x10, 0x32, 0x54, 0x76, 0x98, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}))
	six := must(NewTensor(F6_E3M2, []int{2, 2, 4}, []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}))
	narrow, wide := must(NewTensor(F4, []int{2, 2}, []byte{0x21, 0x43})), must(NewTensor(F4, []int{2, 4}, []byte{0x65, 0x07, 0x10, 0x32}))
	for _, c := range []struct {
		rule string
		x    Tensor
		want []byte
	}{
		{"columns that fill bytes", must(x.Slice(All(), Span(2, 6))), []byte{0x32, 0x54, 0x98, 0xba}},
		{"a row", must(x.Slice(At(1))), []byte{0x76, 0x98, 0xba}},
		{"nothing", must(x.Slice(All(), Span(3, 3))), nil},
		{"what is only one long need not start a byte each time", must(rows.Slice(Span(0, 1), All().By(2), Span(0, 2))), []byte{0x10, 0x76}},
		{"four of 6 bits", must(six.Slice(All(), At(1))), []byte{3, 4, 5, 9, 10, 11}},
		{"joined rows", must(Concat(1, narrow, wide)), []byte{0x21, 0x65, 0x07, 0x43, 0x10, 0x32}},
		{"a single row may end anywhere in its last but whole byte", must(Concat(0, odd, odd)), []byte{1, 2, 3, 1, 2, 3}},
	} {
		t.Run(c.rule, func(t *testing.T) { require.Equal(t, c.want, appended[byte](c.x)) })
	}
}

// TestContiguous checks which slices, transposed and joined tensors can be viewed.
func TestContiguous(t *testing.T) {
	x := counting(U32, 4, 6, 2)
	of := func(shape []int, dims ...int) Tensor { return must(counting(U32, shape...).Transpose(dims...)) }
	rows := func(first, end int) Tensor { return must(x.Slice(Span(first, end))) }
	heads := must(must(counting(U32, 6, 12).Slice(All(), Span(0, 8))).Reshape(2, 3, 4, 2))
	for _, c := range []struct {
		rule       string
		x          Tensor
		contiguous bool
	}{
		{"a whole tensor", must(x.Slice()), true},
		{"a span of rows", rows(1, 3), true},
		{"a span at an index", must(x.Slice(At(2), Span(1, 4))), true},
		{"one element", must(x.Slice(At(2), At(3), At(1))), true},
		{"a span in a span of one row", must(x.Slice(Span(1, 2), Span(2, 5))), true},
		{"a step beyond the end", must(x.Slice(All().By(4), Span(2, 5))), true},
		{"a span of the whole dimension", must(x.Slice(All(), Span(0, 6))), true},
		{"no elements", must(x.Slice(Span(2, 2), Span(1, 2))), true},
		{"a part of several rows", must(x.Slice(All(), Span(0, 5))), false},
		{"a step", must(x.Slice(All().By(2))), false},
		{"an index of the last dimension", must(x.Slice(All(), All(), At(0))), false},
		{"no dimension moves", of([]int{4, 6}, 0, 1), true},
		{"a row becomes a column", of([]int{1, 6}, 1, 0), true},
		{"a dimension of size 1 moves", of([]int{4, 1, 6}, 1, 0, 2), true},
		{"two of them move", of([]int{1, 4, 1, 6}, 1, 3, 0, 2), true},
		{"no elements move", of([]int{4, 0, 6}, 2, 1, 0), true},
		{"a scalar", of([]int{}), true},
		{"a matrix", of([]int{4, 6}, 1, 0), false},
		{"the leading dimensions move", of([]int{4, 6, 2}, 1, 0, 2), false},
		{"adjacent rows", must(Concat(0, rows(0, 1), rows(1, 3))), true},
		{"joined rows that the next continues", must(Concat(0, must(Concat(0, rows(0, 1), rows(1, 2))), rows(2, 4))), true},
		{"nothing joined", must(Concat(0, rows(1, 1), rows(3, 3))), true},
		{"rows with a gap", must(Concat(0, rows(0, 1), rows(2, 3))), false},
		{"rows in another order", must(Concat(0, rows(1, 2), rows(0, 1))), false},
		{"a row twice", must(Concat(0, rows(0, 1), rows(0, 1))), false},
		{"rows of two tensors", must(Concat(0, rows(0, 1), must(counting(U32, 4, 6, 2).Slice(Span(1, 2))))), false},
		{"adjacent rows as columns", must(Concat(1, rows(0, 1), rows(1, 2))), true},
		{"rows as columns", must(Concat(1, rows(0, 2), rows(2, 4))), false},
		{"a row of what was reshaped without reading", must(heads.Slice(At(1), At(2))), true},
		{"and of what was transposed before", must(must(of([]int{2, 3, 12}, 1, 0, 2).Reshape(3, 2, 3, 4)).Slice(At(2), At(1), At(0))), true},
		{"what is read through", must(of([]int{4, 6}, 1, 0).Reshape(24)), false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			view, err := View[uint32](c.x)
			if !c.contiguous {
				require.ErrorIs(t, err, errors.ErrUnsupported)
				return
			}
			require.NoError(t, err)
			require.Len(t, view, c.x.Len())
			require.NotNil(t, view)
		})
	}
	flat := must(must(x.Transpose()).Reshape(48))
	require.ErrorContains(t, errorOf(View[uint32](flat)), "its elements were not contiguous before Reshape")
	require.Equal(t, flat, must(Concat(0, must(flat.Part(0, 0, 2)), must(flat.Part(0, 1, 2)))), "parts are the tensor again")
	columns := func(first, end int) Tensor { return must(heads.Slice(All(), Span(first, end))) }
	require.Equal(t, heads, must(Concat(1, columns(0, 1), columns(1, 3))))
}

// TestReaderFaults checks the text of the error when a reader fails.
func TestReaderFaults(t *testing.T) {
	for _, c := range []struct {
		rule string
		r    io.ReaderAt
		is   error
		want string
	}{
		{"it ends early", bytes.NewReader(make([]byte, 10)), io.ErrUnexpectedEOF, "reading 16 bytes at byte 0 of the data: unexpected EOF"},
		{"it fails", &failingReader{ReaderAt: bytes.NewReader(make([]byte, 16))}, errReader, "reading 16 bytes at byte 0"},
		{"it lies about n", readerAtFunc(func(p []byte, _ int64) (int, error) { return len(p) + 1, nil }), nil, "read 17 of 16 bytes"},
		{"it has a name", namedReader{bytes.NewReader(nil)}, io.ErrUnexpectedEOF, "safetensors: weights.npz: reading 16 bytes at byte 0 of the data: unexpected EOF"},
		{"it is a tensor", must(NewTensorAt(U32, []int{4}, namedReader{bytes.NewReader(nil)})), io.ErrUnexpectedEOF, "of the data: weights.npz: reading 16 bytes"},
		{"it returns a negative n", readerAtFunc(func(p []byte, _ int64) (int, error) { return -1, nil }), nil, "read -1 of 16 bytes"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := Append[uint32](nil, must(NewTensorAt(U32, []int{4}, c.r)))
			require.ErrorContains(t, err, c.want)
			if c.is != nil {
				require.ErrorIs(t, err, c.is)
			}
		})
	}
}

// A namedReader has the name of a file, as an *os.File has.
type namedReader struct{ io.ReaderAt }

func (namedReader) Name() string { return "weights.npz" }

// TestPartsOfTwo joins the first half of one tensor with the second half of another:
// where they are says nothing about what they are of.
func TestPartsOfTwo(t *testing.T) {
	halves := func(x, y Tensor) Tensor { return must(Concat(0, must(x.Part(0, 0, 2)), must(y.Part(0, 1, 2)))) }
	ones := must(NewTensor(U8, []int{4}, []byte{1, 1, 1, 1}))
	twos := must(NewTensor(U8, []int{4}, []byte{2, 2, 2, 2}))
	for i, x := range sourcesOf(t, ones) {
		for k, y := range sourcesOf(t, twos) {
			require.Equal(t, []byte{1, 1, 2, 2}, appended[byte](halves(x, y)), "%s %s", i, k)
		}
	}
	x := must(NewTensor(F32, []int{2}, []float32{1e9, 1e9}))
	twice := must(must(x.Convert(F16)).Convert(BF16))
	require.Equal(t, []uint16{0x4e6e, 0x7f80}, appended[uint16](halves(must(x.Convert(BF16)), twice)), "one of them rounded twice")
}

// TestConvert checks rounding in one and two conversions, and that a tensor can be converted
// to several dtypes, each apart from the others.
func TestConvert(t *testing.T) {
	x := must(NewTensor(F64, []int{4}, []float64{1, 1 + 0x1p-8 + 0x1p-30, math.Inf(-1), 1e300}))
	direct := must(x.Convert(BF16))
	twice := must(must(x.Convert(F32)).Convert(BF16)) // F32 drops the bit that breaks the tie
	half := must(twice.Convert(F16))
	must(twice.Convert(F32))
	require.Equal(t, []uint16{0x3f80, 0x3f81, 0xff80, 0x7f80}, appended[uint16](direct))
	require.Equal(t, []uint16{0x3f80, 0x3f80, 0xff80, 0x7f80}, appended[uint16](twice))
	require.Equal(t, []uint16{0x3c00, 0x3c00, 0xfc00, 0x7c00}, appended[uint16](half))
	require.Equal(t, []float64{1, 1, math.Inf(-1), math.Inf(1)}, appended[float64](twice))
	must(View[float64](must(x.Convert(F64))))
	require.ErrorIs(t, errorOf(View[uint16](direct)), errors.ErrUnsupported)
}

// TestTranspose: without dims the order is that of numpy.transpose, and ranks that a file
// may claim cost no more than their elements.
func TestTranspose(t *testing.T) {
	x := counting(U32, 2, 3, 2)
	y := must(x.Transpose())
	require.Equal(t, []uint32{0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11}, appended[uint32](y))
	require.Equal(t, x, must(y.Transpose()), "twice is once more the tensor")
	ones := must(NewTensor(U8, slices.Repeat([]int{1}, 1<<20), []byte{7}))
	require.Less(t, testplatform.Allocated(func() { ones = must(ones.Transpose()) }), uint64(64<<20))
	require.Equal(t, []byte{7}, appended[byte](ones))
}

// TestParseRanges: ParseRanges reads what Range.String prints, and what Python writes in other
// ways; the ranges select what Python's select.
func TestParseRanges(t *testing.T) {
	x := counting(I32, 5, 4, 3)
	for _, c := range []struct {
		text   string
		ranges []Range
		python string // how String prints the ranges
	}{
		{"", nil, ""},
		{" ", nil, ""},
		{":", []Range{All()}, ":"},
		{"::", []Range{All()}, ":"},
		{"3:", []Range{From(3)}, "3:"},
		{"-2:", []Range{From(-2)}, "-2:"},
		{"0:", []Range{From(0)}, "0:"},
		{":2", []Range{Span(0, 2)}, "0:2"},
		{":-1", []Range{Span(0, -1)}, "0:-1"},
		{"1:3", []Range{Span(1, 3)}, "1:3"},
		{"::2", []Range{All().By(2)}, "::2"},
		{"1::2", []Range{From(1).By(2)}, "1::2"},
		{"1:4:2", []Range{Span(1, 4).By(2)}, "1:4:2"},
		{":4:1", []Range{Span(0, 4).By(1)}, "0:4"},
		{"-1", []Range{At(-1)}, "-1"},
		{"3:, -1, ::2", []Range{From(3), At(-1), All().By(2)}, "3:, -1, ::2"},
		{"\t1 : 3 ,2", []Range{Span(1, 3), At(2)}, "1:3, 2"},
	} {
		t.Run(c.text, func(t *testing.T) {
			got, err := ParseRanges(c.text)
			require.NoError(t, err)
			require.Equal(t, must(x.Slice(c.ranges...)), must(x.Slice(got...)))
			printed := make([]string, len(got))
			for i, r := range got {
				printed[i] = r.String()
			}
			require.Equal(t, c.python, strings.Join(printed, ", "))
			again, err := ParseRanges(c.python)
			require.NoError(t, err)
			require.Equal(t, got, again)
		})
	}
	require.Equal(t, "3", At(3).By(2).String(), "a step that changes nothing is not printed: 3:2 is a span")
}

// TestFrom: From selects the indices from its start to the end, for every start of a dimension.
func TestFrom(t *testing.T) {
	x := counting(I32, 5, 2)
	for start := range 6 {
		require.Equal(t, must(x.Slice(Span(start, 5))), must(x.Slice(From(start))))
		if start > 0 {
			require.Equal(t, must(x.Slice(Span(5-start, 5))), must(x.Slice(From(-start))))
		}
		for step := 1; step < 7; step++ {
			require.Equal(t, must(x.Slice(Span(start, 5).By(step))), must(x.Slice(From(start).By(step))))
		}
	}
}

// TestReshapeRest: a -1 in Reshape is the number of elements that the other dimensions leave.
func TestReshapeRest(t *testing.T) {
	x := counting(I32, 4, 6)
	for _, c := range []struct {
		x           Tensor
		shape, want []int
	}{
		{x, []int{-1}, []int{24}},
		{x, []int{-1, 3}, []int{8, 3}},
		{x, []int{2, -1, 3}, []int{2, 4, 3}},
		{x, []int{24, -1}, []int{24, 1}},
		{must(x.Transpose()), []int{3, -1}, []int{3, 8}},
		{counting(I32), []int{-1}, []int{1}},
		{counting(I32, 0, 6), []int{-1, 6}, []int{0, 6}},
		{must(NewTensor(F4, []int{2, 6}, make([]byte, 6))), []int{-1, 4}, []int{3, 4}},
	} {
		shape := slices.Clone(c.shape)
		got, err := c.x.Reshape(c.shape...)
		require.NoError(t, err)
		require.Equal(t, c.want, got.Shape())
		require.Equal(t, shape, c.shape, "the shape that was given stays")
		require.True(t, must(Equal(got, must(c.x.Reshape(c.want...)))))
	}
}

// TestSliceOfManyPieces: a slice of a joined tensor is that of a naive copy, for all starts, stops
// and steps over pieces of several sizes; and the cost of one row does not grow with the pieces.
func TestSliceOfManyPieces(t *testing.T) {
	whole := counting(I32, 12, 2)
	sizes := []int{1, 3, 1, 2, 4, 1}
	shuffled := []int{4, 1, 0, 5, 3, 2} // so that no pieces are adjacent
	var pieces []Tensor
	var rows []int32
	for _, i := range shuffled {
		begin := 0
		for _, n := range sizes[:i] {
			begin += n
		}
		piece := must(whole.Slice(Span(begin, begin+sizes[i])))
		pieces = append(pieces, piece)
		rows = append(rows, appended[int32](piece)...)
	}
	joined := must(Concat(0, pieces...))
	naive := must(NewTensor(I32, []int{12, 2}, rows))
	ranges := []Range{}
	for first := range 13 {
		for stop := first; stop < 13; stop++ {
			for step := 1; step < 14; step++ {
				ranges = append(ranges, Span(first, stop).By(step))
			}
		}
	}
	for i := range 12 {
		ranges = append(ranges, At(i))
	}
	for _, r := range ranges {
		want, got := must(naive.Slice(r)), must(joined.Slice(r))
		require.Equal(t, want.Shape(), got.Shape(), r)
		require.Equal(t, appended[int32](want), appended[int32](got), r)
	}

	row := func(n int) float64 {
		pieces := make([]Tensor, n)
		for i := range pieces {
			pieces[i] = counting(I32, 1, 2)
		}
		joined := must(Concat(0, pieces...))
		return testing.AllocsPerRun(10, func() { must(joined.Slice(At(n - 1))) })
	}
	require.InDelta(t, row(3), row(3000), 1)
}
