package strided

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// slow is the definition: element by element.
func slow(storage []byte, l Layout) []byte {
	out := []byte{}
	var visit func(dim int, at int64)
	visit = func(dim int, at int64) {
		if dim == len(l.Shape) {
			out = append(out, storage[at:][:l.Width]...)
			return
		}
		for i := range l.Shape[dim] {
			visit(dim+1, at+int64(i)*l.Strides[dim])
		}
	}
	visit(0, l.Offset)
	return out
}

func storageOf(size int) []byte {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(1, uint64(size)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// requireReads compares reads of all of l, and of parts of it, with the slow twin.
func requireReads(t *testing.T, storage []byte, l Layout, random *rand.Rand) {
	t.Helper()
	want := slow(storage, l)
	r, err := NewReader(bytes.NewReader(storage), int64(len(storage)), l)
	require.NoError(t, err)
	got := make([]byte, len(want))
	n, err := r.ReadAt(got, 0)
	require.NoError(t, err)
	require.Equal(t, len(want), n)
	require.True(t, bytes.Equal(want, got), "%+v", l)
	for range 5 {
		off := random.IntN(len(want))
		end := off + 1 + random.IntN(len(want)-off)
		part := make([]byte, end-off)
		_, err := r.ReadAt(part, int64(off))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want[off:end], part), "%+v bytes %d to %d", l, off, end)
	}
	n, err = r.ReadAt(make([]byte, 10), int64(len(want)))
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
}

// randomLayout permutes, slices, expands and steps through a random array.
func randomLayout(random *rand.Rand, most int) (Layout, int) {
	l := Layout{Width: []int{1, 2, 4, 8, 3}[random.IntN(5)]}
	size := int64(l.Width)
	rank := random.IntN(5)
	for range rank {
		n := 1 + random.IntN(most)
		stride := size
		switch random.IntN(4) {
		case 0:
			stride *= int64(1 + random.IntN(3))
		case 1:
			stride = 0
		}
		l.Shape, l.Strides = append(l.Shape, n), append(l.Strides, stride)
		size = max(size, size+int64(n-1)*stride)
	}
	random.Shuffle(rank, func(i, k int) {
		l.Shape[i], l.Shape[k] = l.Shape[k], l.Shape[i]
		l.Strides[i], l.Strides[k] = l.Strides[k], l.Strides[i]
	})
	l.Offset = int64(random.IntN(20))
	return l, int(l.Offset+size) + random.IntN(5)
}

func TestAgainstSlow(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 3))
	for range 3000 {
		l, size := randomLayout(random, 9)
		requireReads(t, storageOf(size), l, random)
	}
}

// TestLimits: what is read does not depend on the limits, small ones included, where
// every buffer is too small for something.
func TestLimits(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 7))
	for range 3000 {
		l, size := randomLayout(random, 9)
		storage := storageOf(size)
		want := slow(storage, l)
		r, err := NewReader(bytes.NewReader(storage), int64(len(storage)), l)
		require.NoError(t, err)
		g, ok := r.(*gather)
		if !ok {
			continue
		}
		g.buffer = g.run + int64(random.IntN(300))
		g.direct = min(g.buffer, 1+int64(random.IntN(50)))
		g.gap, g.enough = int64(random.IntN(100)), int64(random.IntN(100))
		got := make([]byte, len(want))
		_, err = r.ReadAt(got, 0)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "%+v %+v", l, g.limits)
	}
}

// TestLarge has boxes that take several tiles, sparse and dense ones.
func TestLarge(t *testing.T) {
	random := rand.New(rand.NewPCG(4, 5))
	for name, l := range map[string]Layout{
		"transposed":        {4, []int{1500, 700}, 0, []int64{4, 1500 * 4}},
		"transposed slice":  {4, []int{3, 40}, 8, []int64{4, 60_000}},
		"transposed, wide":  {8, []int{2, 200_000}, 0, []int64{8, 16}},
		"channels last":     {2, []int{40, 64, 9, 9}, 0, []int64{64 * 81 * 2, 2, 64 * 9 * 2, 64 * 2}},
		"columns":           {4, []int{9000, 3}, 4, []int64{400, 4}},
		"rows":              {1, []int{3, 5000}, 7, []int64{9000, 1}},
		"expanded":          {4, []int{300, 400}, 4, []int64{0, 4}},
		"expanded, inner":   {4, []int{300, 4000}, 4, []int64{4, 0}},
		"expanded, outer":   {4, []int{30, 300, 50}, 4, []int64{0, 4, 1200}},
		"all the same":      {8, []int{1000, 1000}, 4, []int64{0, 0}},
		"overlapping":       {4, []int{1000, 500}, 0, []int64{4, 4}},
		"three permuted":    {1, []int{70, 80, 90}, 0, []int64{1, 70 * 90, 70}},
		"rows permuted":     {4, []int{20, 30, 2000}, 0, []int64{8000, 8000 * 20, 4}},
		"gaps in all":       {4, []int{100, 100, 20}, 0, []int64{12, 80_000, 1300}},
		"a buffer, sparse":  {4, []int{3, 1 << 17}, 0, []int64{2 << 20, 8}},
		"one column of two": {1, []int{2, 1 << 20}, 0, []int64{1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			size := l.Offset + int64(l.Width)
			for i, n := range l.Shape {
				size += int64(n-1) * l.Strides[i]
			}
			requireReads(t, storageOf(int(size)), l, random)
		})
	}
}

func TestFortran(t *testing.T) {
	require.Equal(t, Layout{2, []int{3, 4, 5}, 0, []int64{2, 6, 24}}, Fortran(2, []int{3, 4, 5}))
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		l    Layout
		want string
	}{
		"beyond the storage":  {Layout{4, []int{2, 2}, 0, []int64{4, 44}}, "its last element ends at byte 52 of a storage of 51 bytes"},
		"offset beyond":       {Layout{4, nil, 48, nil}, "its last element ends at byte 52 of a storage of 51 bytes"},
		"negative offset":     {Layout{4, nil, -4, nil}, "negative offset -4"},
		"negative stride":     {Layout{4, []int{2}, 40, []int64{-4}}, "dimension 0 has size 2 and stride -4"},
		"negative dimension":  {Layout{4, []int{-2}, 0, []int64{4}}, "dimension 0 has size -2 and stride 4"},
		"strides missing":     {Layout{4, []int{2}, 0, nil}, "0 strides for 1 dimensions"},
		"stride overflows":    {Layout{4, []int{5}, 0, []int64{1 << 62}}, "its size overflows 64 bits"},
		"sum overflows":       {Layout{4, []int{2, 2, 2}, 0, []int64{1 << 62, 1 << 62, 4}}, "its size overflows 64 bits"},
		"offset overflows":    {Layout{4, []int{2}, math.MaxInt64, []int64{4}}, "its size overflows 64 bits"},
		"63 bits overflow":    {Layout{4, []int{1 << 30, 1 << 30, 2}, 0, []int64{0, 0, 0}}, "its size overflows 64 bits"},
		"expansion overflows": {Layout{4, []int{math.MaxInt, math.MaxInt}, 0, []int64{0, 0}}, "its size overflows 64 bits"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewReader(bytes.NewReader(make([]byte, 51)), 51, test.l)
			require.EqualError(t, err, test.want)
		})
	}
}

// TestEmpty: without elements, offset and strides do not matter.
func TestEmpty(t *testing.T) {
	r, err := NewReader(bytes.NewReader(nil), 0, Layout{4, []int{math.MaxInt, 0}, 400, []int64{1 << 62, 4}})
	require.NoError(t, err)
	n, err := r.ReadAt(make([]byte, 1), 0)
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
}

// failing fails after some reads.
type failing struct {
	io.ReaderAt
	left int
}

var errFailing = errors.New("failing")

func (f *failing) ReadAt(p []byte, off int64) (int, error) {
	if f.left--; f.left < 0 {
		return 0, errFailing
	}
	return f.ReaderAt.ReadAt(p, off)
}

func TestFailingReader(t *testing.T) {
	storage := storageOf(200 * 5000)
	for name, l := range map[string]Layout{
		"packed": {4, []int{3, 200}, 8, []int64{4, 5000}},
		"direct": {4, []int{50, 1200}, 0, []int64{10000, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			size := int64(4 * l.Shape[0] * l.Shape[1])
			for left := range min(l.Shape[0], l.Shape[1]) {
				r, err := NewReader(&failing{bytes.NewReader(storage), left}, int64(len(storage)), l)
				require.NoError(t, err)
				_, err = r.ReadAt(make([]byte, size), 0)
				require.ErrorIs(t, err, errFailing)
			}
			r, err := NewReader(bytes.NewReader(storage[:9000]), int64(len(storage)), l)
			require.NoError(t, err)
			_, err = r.ReadAt(make([]byte, size), 0)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		})
	}
}

func TestSwap(t *testing.T) {
	storage := storageOf(48)
	for _, unit := range []int{0, 1, 2, 4, 8} {
		want := slices.Clone(storage)
		for b := want; unit > 1 && len(b) > 0; b = b[unit:] {
			slices.Reverse(b[:unit])
		}
		r := Swap(bytes.NewReader(storage), int64(len(storage)), unit)
		for off := range want {
			for end := off + 1; end <= len(want); end++ {
				p := make([]byte, end-off)
				n, err := r.ReadAt(p, int64(off))
				require.NoError(t, err)
				require.Equal(t, len(p), n)
				require.Equal(t, want[off:end], p)
			}
		}
		n, err := r.ReadAt(make([]byte, 9), 44)
		require.Equal(t, 4, n)
		require.Equal(t, io.EOF, err)
	}
	n, err := Swap(bytes.NewReader(storage), 47, 8).ReadAt(make([]byte, 9), 39)
	require.Equal(t, 1, n)
	require.Equal(t, io.EOF, err, "the last bytes are no number")
}

// BenchmarkTransposed reads a transposed matrix in blocks of 8 MiB, as writers do.
func BenchmarkTransposed(b *testing.B) {
	for _, width := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(width), func(b *testing.B) {
			const n, block = 4096, 8 << 20
			storage := storageOf(n * n * width)
			r, err := NewReader(bytes.NewReader(storage), int64(len(storage)), Fortran(width, []int{n, n}))
			require.NoError(b, err)
			out := make([]byte, block)
			b.SetBytes(int64(len(storage)))
			for b.Loop() {
				for off := 0; off < len(storage); off += block {
					_, err := r.ReadAt(out, int64(off))
					require.NoError(b, err)
				}
			}
		})
	}
}
