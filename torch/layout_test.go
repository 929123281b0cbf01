package torch

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/torchtype"
	"github.com/stretchr/testify/require"
)

// slow returns the elements of a layout as the definition states them, one by one.
func (l layout) slow(storage []byte, width int) []byte {
	out := []byte{}
	var visit func(dim int, at int64)
	visit = func(dim int, at int64) {
		if dim == len(l.shape) {
			out = append(out, storage[at*int64(width):][:width]...)
			return
		}
		for i := range l.shape[dim] {
			visit(dim+1, at+int64(i)*l.strides[dim])
		}
	}
	visit(0, l.offset)
	return out
}

// randomLayout permutes, slices, expands and steps through a random array. n is the number of
// elements of its storage, which may end with the last element of the layout.
func randomLayout(random *rand.Rand) (l layout, n int) {
	size := int64(1)
	rank := random.IntN(5)
	for range rank {
		dim, stride := 1+random.IntN(6), size
		switch random.IntN(5) {
		case 0:
			stride *= int64(1 + random.IntN(3))
		case 1:
			stride += int64(random.IntN(3))
		case 2:
			stride = int64(random.IntN(2))
		}
		l.shape, l.strides = append(l.shape, dim), append(l.strides, stride)
		size = max(size, size+int64(dim-1)*stride)
	}
	random.Shuffle(rank, func(i, k int) {
		l.shape[i], l.shape[k] = l.shape[k], l.shape[i]
		l.strides[i], l.strides[k] = l.strides[k], l.strides[i]
	})
	l.offset = int64(random.IntN(20))
	return l, int(l.offset+size) + random.IntN(2)*random.IntN(5)
}

// TestAgainstSlow compares the elements of random layouts with the definition, and every
// source of a storage with the others.
func TestAgainstSlow(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 3))
	for range 3000 {
		l, n := randomLayout(random)
		e, _ := elementOf(torchtype.Of([]string{"uint8", "int16", "float32", "complex64"}[random.IntN(4)]))
		data := make([]byte, n*e.Width)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		want := l.slow(data, e.Width)
		swapped := bytes.Clone(data)
		for i := 0; i < len(swapped); i += e.Number {
			for k := range e.Number {
				swapped[i+k] = data[i+e.Number-1-k]
			}
		}
		for name, s := range map[string]source{
			"reader":     {r: bytes.NewReader(data), size: int64(len(data))},
			"big-endian": {r: bytes.NewReader(swapped), size: int64(len(data)), bigEndian: true},
		} {
			all := must(s.tensor(e, ""))
			require.NoError(t, l.check(int64(n), e.Width))
			x := must(l.view(all))
			got := must(safetensors.Append[byte](nil, x))
			require.Equal(t, want, append([]byte{}, got...), "%s %+v of %d", name, l, n)
			gathered := must(l.gathered(all))
			for range 3 {
				off := random.IntN(len(want))
				part := make([]byte, 1+random.IntN(len(want)-off))
				must(gathered.ReadAt(part, int64(off)))
				require.Equal(t, want[off:][:len(part)], part, "%s %+v of %d", name, l, n)
			}
		}
	}
}

// A claimed storage has any number of bytes, each of which depends on its offset. A read fails if
// it contains an offset for which the func fails returns true.
type claimed struct{ fails func(off int64) bool }

func (c claimed) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		if c.fails != nil && c.fails(off+int64(i)) {
			return i, errFailing
		}
		p[i] = claimedByte(off + int64(i))
	}
	return len(p), nil
}

func claimedByte(off int64) byte { return byte(uint64(off) * 0x9e3779b97f4a7c15 >> 56) }

// TestGatherAtEnd: rows that are far apart are read even if the storage ends with the last row. On
// 32-bit platforms, a storage of more than a gigabyte has no room for padding. An error of any row
// is returned.
func TestGatherAtEnd(t *testing.T) {
	const n, step, columns = 1 << 24, 1 << 21, 3
	for rows := 2; rows <= 5; rows++ {
		first := n - (rows-1)*step - columns // offset of the first row; the last one ends with the storage
		l := layout{int64(first), []int{rows, columns}, []int64{step, 1}}
		require.NoError(t, l.check(n, 1))
		open := func(c claimed) safetensors.Tensor {
			return must(l.gathered(must(safetensors.NewTensorAt(safetensors.U8, []int{n}, c))))
		}
		var want []byte
		for row := range rows {
			for column := range columns {
				want = append(want, claimedByte(int64(first+row*step+column)))
			}
		}
		require.Equal(t, want, must(safetensors.Append[byte](nil, open(claimed{}))), "%d rows", rows)
		for row := range rows {
			failing := open(claimed{func(off int64) bool { return off/step == int64(first+row*step)/step }})
			require.ErrorIs(t, errorOf(safetensors.Append[byte](nil, failing)), errFailing, "row %d of %d", row, rows)
		}
	}
}

// TestWindow: a window of a storage is read without the rest, even if the storage is big-endian, or
// reading it fails. A storage with more elements than an int can number is refused.
func TestWindow(t *testing.T) {
	e, _ := elementOf(torchtype.Of("float32"))
	for _, bigEndian := range []bool{false, true} {
		v := &virtual{size: 1 << 20}
		all := must(source{r: v, size: v.size, bigEndian: bigEndian}.tensor(e, ""))
		must(all.ReadAt(make([]byte, 1001), 50_001))
		require.LessOrEqual(t, v.read.Load(), int64(1008))
	}
	_, err := source{r: &virtual{}, size: 1 << 40}.tensor(e, "")
	require.Equal(t, math.MaxInt == math.MaxInt32, err != nil)
	gone := must(source{r: bytes.NewReader(nil), size: 12}.tensor(e, ""))
	require.ErrorContains(t, errorOf(must(layout{0, []int{2, 3}, []int64{0, 1}}.gathered(gone)).ReadAt(make([]byte, 24), 0)), "unexpected EOF")
}

// TestViews: the layouts that result from slices, steps and transposes of whole tensors are read in
// place, and are not gathered in memory first.
func TestViews(t *testing.T) {
	for name, test := range map[string]struct {
		l    layout
		n    int64
		want bool
	}{
		"whole":            {layout{0, []int{6, 8}, []int64{8, 1}}, 48, true},
		"transposed":       {layout{0, []int{8, 6}, []int64{1, 8}}, 48, true},
		"slice at the end": {layout{18, []int{4, 6}, []int64{8, 1}}, 48, true},
		"steps":            {layout{0, []int{3, 3}, []int64{16, 3}}, 48, true},
		"odd steps":        {layout{0, []int{3, 4}, []int64{8, 1}}, 20, true},
		"last column":      {layout{7, []int{6}, []int64{8}}, 48, true},
		"permuted":         {layout{0, []int{2, 4, 3, 5}, []int64{1, 10, 40, 2}}, 120, true},
		"channels last":    {layout{0, []int{3, 4, 5, 2}, []int64{40, 1, 8, 4}}, 120, true},
		"expanded by one":  {layout{0, []int{1, 3}, []int64{0, 1}}, 3, true},
		"expanded":         {layout{0, []int{2, 3}, []int64{0, 1}}, 3, false},
		"overlapping":      {layout{1, []int{4, 3}, []int64{2, 1}}, 10, false},
	} {
		require.NoError(t, test.l.check(test.n, 4))
		_, _, count, ok := test.l.rows(test.l.order())
		require.Equal(t, test.want, ok, name)
		require.LessOrEqual(t, test.l.offset+count, test.n*padding, name)
	}
}

// TestGatherInPieces: even if the buffer of a gather is too small, and its elements are too far
// apart to be read together, it returns the elements of the definition, starting at any byte.
func TestGatherInPieces(t *testing.T) {
	defer func(buffer, distance int64) { gatherBuffer, nearby = buffer, distance }(gatherBuffer, nearby)
	random := rand.New(rand.NewPCG(5, 6))
	for range 3000 {
		l, n := randomLayout(random)
		for i := range l.strides { // makes some strides larger, and some equal
			if random.IntN(4) == 0 {
				n += l.shape[i] * 50
				l.strides[i] += int64(random.IntN(50))
			}
		}
		e, _ := elementOf(torchtype.Of([]string{"uint8", "int16", "float32"}[random.IntN(3)]))
		data := make([]byte, n*e.Width)
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		require.NoError(t, l.check(int64(n), e.Width))
		want := l.slow(data, e.Width)
		nearby = int64(random.IntN(20))
		gatherBuffer = 2*nearby + int64(8+random.IntN(64))
		x := must(l.gathered(must(source{r: bytes.NewReader(data), size: int64(len(data))}.tensor(e, ""))))
		all := make([]byte, len(want))
		must(x.ReadAt(all, 0))
		require.Equal(t, want, all, "%+v", l)
		off := random.IntN(len(want))
		part := make([]byte, random.IntN(len(want)-off+1))
		must(x.ReadAt(part, int64(off)))
		require.Equal(t, want[off:][:len(part)], part, "%+v from byte %d", l, off)
	}
}
