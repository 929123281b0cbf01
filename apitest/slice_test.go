package apitest_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A naiveRange is a Range whose fields a test can read.
type naiveRange struct {
	kind        int // 0 All, 1 Span, 2 At
	start, stop int
	step        int
}

func (n naiveRange) Range() Range {
	r := All()
	switch n.kind {
	case 1:
		r = Span(n.start, n.stop)
	case 2:
		r = At(n.start)
	}
	if n.step != 1 {
		r = r.By(n.step)
	}
	return r
}

// indices lists the indices that the range selects of a dimension. ok is false if
// the range is an error.
func (n naiveRange) indices(size int) (list []int, ok bool) {
	norm := func(i int) int {
		if i < 0 {
			i += size
		}
		return i
	}
	if n.step < 1 {
		return nil, false
	}
	start, stop := 0, size
	switch n.kind {
	case 1:
		start, stop = norm(n.start), norm(n.stop)
		if start < 0 || stop < start || stop > size {
			return nil, false
		}
	case 2:
		start = norm(n.start)
		stop = start + 1
		if start < 0 || stop > size {
			return nil, false
		}
	}
	for i := start; i < stop; i += n.step {
		list = append(list, i)
	}
	return list, true
}

// naiveSlice selects elements one by one from numbers, the elements of a tensor of
// that shape. ok is false if a range is an error.
func naiveSlice(numbers []uint32, shape []int, ranges []naiveRange) (part []uint32, partShape []int, ok bool) {
	if len(ranges) > len(shape) {
		return nil, nil, false
	}
	part, partShape = numbers, []int{}
	inner := 1
	for _, dim := range shape {
		inner *= dim
	}
	outer := 1
	for i, dim := range shape {
		r := naiveRange{step: 1}
		if i < len(ranges) {
			r = ranges[i]
		}
		list, ok := r.indices(dim)
		if !ok {
			return nil, nil, false
		}
		if dim > 0 {
			inner /= dim
		}
		var next []uint32
		for o := range outer {
			for _, k := range list {
				if n := len(part); n > 0 {
					from := (o*dim + k) * inner
					next = append(next, part[from:from+inner]...)
				}
			}
		}
		part = next
		outer *= len(list)
		if r.kind != 2 {
			partShape = append(partShape, len(list))
		}
	}
	return part, partShape, true
}

// requireSliceAsNaive compares Slice with naiveSlice, from every kind of source.
func requireSliceAsNaive(t testing.TB, shape []int, ranges []naiveRange) {
	t.Helper()
	x := counting(t, U32, shape...)
	all, err := Append[uint32](nil, x)
	require.NoError(t, err)
	want, wantShape, ok := naiveSlice(all, shape, ranges)
	var list []Range
	for _, r := range ranges {
		list = append(list, r.Range())
	}
	var file bytes.Buffer
	require.NoError(t, Write(&file, map[string]Tensor{"x": x}, nil))
	read, err := NewFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
	require.NoError(t, err)
	parsed, err := Parse(file.Bytes())
	require.NoError(t, err)
	fromReader, err := read.Tensor("x")
	require.NoError(t, err)
	fromMemory, err := parsed.Tensor("x")
	require.NoError(t, err)
	for _, source := range []Tensor{x, fromReader, fromMemory} {
		part, err := source.Slice(list...)
		require.Equal(t, ok, err == nil, "%v of %v: %v", list, shape, err)
		if !ok {
			continue
		}
		require.Equal(t, wantShape, part.Shape())
		got, err := Append[uint32](nil, part)
		require.NoError(t, err)
		require.Equal(t, len(want), part.Len())
		if len(want) > 0 {
			require.Equal(t, want, got, "%v of %v", list, shape)
		}
		view, err := View[uint32](part)
		if err == nil && len(want) > 0 {
			require.Equal(t, want, view)
		} else if err != nil {
			require.ErrorIs(t, err, errors.ErrUnsupported)
		}
		// Slicing the slice is slicing the naive result.
		if len(part.Shape()) > 0 && part.Shape()[0] > 0 {
			second, err := part.Slice(Span(part.Shape()[0]/2, part.Shape()[0]), All().By(2))
			secondRanges := []naiveRange{{1, part.Shape()[0] / 2, part.Shape()[0], 1}, {0, 0, 0, 2}}
			wantSecond, wantShape, ok := naiveSlice(want, part.Shape(), secondRanges)
			require.Equal(t, ok, err == nil)
			if ok {
				got, err := Append[uint32](nil, second)
				require.NoError(t, err)
				require.Equal(t, wantShape, second.Shape())
				require.Equal(t, len(wantSecond), len(got))
				if len(got) > 0 {
					require.Equal(t, wantSecond, got)
				}
			}
		}
	}
}

// randomRange returns a range of a dimension of that size, or one just beyond it.
func randomRange(random *rand.Rand, size int) naiveRange {
	r := naiveRange{kind: random.IntN(3), step: 1}
	if random.IntN(3) == 0 {
		r.step = random.IntN(4) // 0 is an error
	}
	r.start = random.IntN(2*size+3) - size - 1
	r.stop = random.IntN(2*size+3) - size - 1
	return r
}

// TestSliceAgainstNaive slices random shapes by random ranges.
func TestSliceAgainstNaive(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	n := 4000
	if testing.Short() || raceEnabled {
		n = 400
	}
	for range n {
		shape := make([]int, random.IntN(5))
		for i := range shape {
			shape[i] = random.IntN(6)
		}
		ranges := make([]naiveRange, random.IntN(len(shape)+2))
		for i := range ranges {
			size := 1
			if i < len(shape) {
				size = shape[i]
			}
			ranges[i] = randomRange(random, size)
		}
		requireSliceAsNaive(t, shape, ranges)
	}
}

// FuzzSlice compares Slice with naiveSlice.
func FuzzSlice(f *testing.F) {
	f.Add([]byte{3, 2, 4, 5}, []byte{1, 0, 2, 1, 2, 255, 0, 1, 0, 0, 0, 2})
	f.Add([]byte{0, 7}, []byte{1, 0, 0, 1})
	f.Fuzz(func(t *testing.T, dims, raw []byte) {
		if len(dims) > 5 {
			dims = dims[:5]
		}
		shape := []int{}
		for _, d := range dims {
			shape = append(shape, int(d)%7)
		}
		var ranges []naiveRange
		for len(raw) >= 4 && len(ranges) < 6 {
			ranges = append(ranges, naiveRange{int(raw[0]) % 3, int(int8(raw[1])), int(int8(raw[2])), int(raw[3]) % 5})
			raw = raw[4:]
		}
		requireSliceAsNaive(t, shape, ranges)
	})
}

// TestSliceErrors checks the error of each rule.
func TestSliceErrors(t *testing.T) {
	x := counting(t, F32, 4, 6)
	for _, c := range []struct {
		rule   string
		ranges []Range
		want   string
	}{
		{"an index is below the size", []Range{At(4)}, "safetensors: slicing F32 [4,6]: dimension 0: index 4 is out of range for size 4"},
		{"a negative index counts from the end", []Range{All(), At(-7)}, "safetensors: slicing F32 [4,6]: dimension 1: index -7 is out of range for size 6"},
		{"a span ends in the dimension", []Range{All(), Span(2, 7)}, "safetensors: slicing F32 [4,6]: dimension 1: range [2:7] is out of range for size 6"},
		{"a span starts before it ends", []Range{Span(3, 2)}, "safetensors: slicing F32 [4,6]: dimension 0: range [3:2] ends before it starts, for size 4"},
		{"a span of negative indices starts before it ends", []Range{Span(-1, -2).By(2)}, "safetensors: slicing F32 [4,6]: dimension 0: range [-1:-2:2] ends before it starts, for size 4"},
		{"a step is not zero", []Range{All().By(0)}, "safetensors: slicing F32 [4,6]: dimension 0: the step of range [:] is below 1"},
		{"a step is not negative", []Range{All().By(-1)}, "safetensors: slicing F32 [4,6]: dimension 0: the step of range [:] is below 1"},
		{"there are at most as many ranges as dimensions", []Range{All(), All(), All()}, "safetensors: slicing F32 [4,6]: 3 ranges for rank 2"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := x.Slice(c.ranges...)
			require.EqualError(t, err, c.want)
		})
	}
}

// TestSliceContiguous checks which slices can be viewed.
func TestSliceContiguous(t *testing.T) {
	x := counting(t, U32, 4, 6, 2)
	for _, c := range []struct {
		rule       string
		ranges     []Range
		contiguous bool
	}{
		{"a whole tensor", nil, true},
		{"a span of rows", []Range{Span(1, 3)}, true},
		{"a span at an index", []Range{At(2), Span(1, 4)}, true},
		{"one element", []Range{At(2), At(3), At(1)}, true},
		{"a span in a span of one row", []Range{Span(1, 2), Span(2, 5)}, true},
		{"a step beyond the end", []Range{All().By(4), Span(2, 5)}, true},
		{"a span of the whole dimension", []Range{All(), Span(0, 6)}, true},
		{"no elements", []Range{Span(2, 2), Span(1, 2)}, true},
		{"a part of several rows", []Range{All(), Span(0, 5)}, false},
		{"a step", []Range{All().By(2)}, false},
		{"an index of the last dimension", []Range{All(), All(), At(0)}, false},
	} {
		t.Run(c.rule, func(t *testing.T) {
			part, err := x.Slice(c.ranges...)
			require.NoError(t, err)
			_, err = View[uint32](part)
			if c.contiguous {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, errors.ErrUnsupported)
			}
		})
	}
}

// TestSliceSubByte checks that F4 and F6 can be sliced on byte boundaries only.
func TestSliceSubByte(t *testing.T) {
	data := make([]byte, 6)
	for i := range data {
		data[i] = byte(0x10*(2*i+1) + 2*i) // element k is k
	}
	x, err := NewTensor(F4, []int{2, 6}, data)
	require.NoError(t, err)
	raw := func(ranges ...Range) []byte {
		part, err := x.Slice(ranges...)
		require.NoError(t, err)
		got, err := Append[byte](nil, part)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, []byte{0x32, 0x54, 0x98, 0xba}, raw(All(), Span(2, 6)))
	require.Equal(t, []byte{0x76, 0x98, 0xba}, raw(At(1)))
	require.Equal(t, []byte{}, append([]byte{}, raw(All(), Span(3, 3))...))
	for _, c := range []struct {
		rule   string
		ranges []Range
		want   string
	}{
		{"the first run starts on a byte boundary", []Range{All(), Span(1, 3)}, "does not start on a byte boundary"},
		{"a run ends on a byte boundary", []Range{All(), Span(0, 3)}, "runs of 3 elements of 4 bits do not end on a byte boundary"},
		{"a single element fills bytes", []Range{All(), All().By(2)}, "runs of 1 elements of 4 bits"},
		{"a scalar fills bytes", []Range{At(0), At(0)}, "runs of 1 elements"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := x.Slice(c.ranges...)
			require.ErrorContains(t, err, c.want)
		})
	}
	odd, err := NewTensor(F4, []int{2, 3}, data[:3])
	require.NoError(t, err)
	_, err = odd.Slice(At(1))
	require.Error(t, err)
	six, err := NewTensor(F6_E3M2, []int{2, 2, 4}, make([]byte, 12))
	require.NoError(t, err)
	_, err = six.Slice(All(), At(1))
	require.NoError(t, err)
	_, err = six.Slice(All(), All(), Span(0, 2))
	require.ErrorContains(t, err, "runs of 2 elements of 6 bits do not end on a byte boundary")
}

// TestSliceSubByteRows slices rows of an odd number of F4 elements: what is only
// one long need not start a byte each time.
func TestSliceSubByteRows(t *testing.T) {
	x, err := NewTensor(F4, []int{4, 3, 3}, []byte{0x10, 0x32, 0x54, 0x76, 0x98, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13})
	require.NoError(t, err)
	y, err := x.Slice(Span(0, 1), All().By(2), Span(0, 2))
	require.NoError(t, err)
	require.Equal(t, []byte{0x10, 0x76}, appended[byte](t, y))
	_, err = x.Slice(Span(0, 2), All().By(2), Span(0, 2))
	require.ErrorContains(t, err, "every 9-th element of 4 bits does not start on a byte boundary")
}

// TestEveryRange slices small dimensions with every range around their bounds.
func TestEveryRange(t *testing.T) {
	for _, size := range []int{0, 1, 3} {
		for step := -1; step <= 4; step++ {
			requireSliceAsNaive(t, []int{size}, []naiveRange{{step: step}})
			for start := -4; start <= 4; start++ {
				requireSliceAsNaive(t, []int{size}, []naiveRange{{kind: 2, start: start, step: step}})
				for stop := -4; stop <= 4; stop++ {
					requireSliceAsNaive(t, []int{size}, []naiveRange{{kind: 1, start: start, stop: stop, step: step}})
				}
			}
		}
	}
}

// TestEveryWindow reads every window of bytes of slices and joined slices, from
// every kind of source: blocks may end anywhere.
func TestEveryWindow(t *testing.T) {
	data := make([]uint16, 3*4*3)
	for i := range data {
		data[i] = uint16(257 * i)
	}
	x, err := NewTensor(U16, []int{3, 4, 3}, data)
	require.NoError(t, err)
	cuts := [][]Range{
		{},
		{All(), At(1)},
		{All(), Span(1, 3)},
		{All(), All(), At(2)},
		{All().By(2), All(), Span(0, 2)},
		{At(1), All().By(3)},
		{Span(1, 3), Span(1, 3), Span(1, 3)},
	}
	for kind, source := range sourcesOf(t, x) {
		for _, ranges := range cuts {
			part, err := source.Slice(ranges...)
			require.NoError(t, err)
			other, err := x.Slice(ranges...) // from memory
			require.NoError(t, err)
			tensors := []Tensor{part}
			for dim := range part.Shape() {
				joined, err := Concat(dim, part, other, part)
				require.NoError(t, err)
				tensors = append(tensors, joined)
			}
			for _, y := range tensors {
				all := appended[byte](t, y)
				step := 1 + len(all)/100 // where there are too many
				if testing.Short() {
					step += 6
				}
				for off := 0; off <= len(all); off++ {
					for n := 0; n <= len(all)-off; n += step {
						p := bytes.Repeat([]byte{0xee}, n+1)
						_, err := y.ReadAt(p[:n], int64(off))
						if err != nil || !bytes.Equal(all[off:][:n], p[:n]) || p[n] != 0xee {
							require.FailNow(t, "wrong bytes", "%s %v %v: %d bytes at %d: %v", kind, ranges, y, n, off, err)
						}
					}
				}
			}
		}
	}
}
