package apitest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// A twin is a tensor and what it should be: numbers that every float dtype but the
// narrowest represents, so that conversions change none.
type twin struct {
	Tensor
	shape []int
	data  []float64
	steps []string
}

// pick returns the twin of the elements at the given numbers, with another shape.
func (x twin) pick(y Tensor, shape []int, step string, at func(i int) int) twin {
	n := 1
	for _, size := range shape {
		n *= size
	}
	next := twin{y, shape, make([]float64, n), append(slices.Clip(x.steps), step)}
	for i := range next.data {
		next.data[i] = x.data[at(i)]
	}
	return next
}

// index returns the indices of element number i of a shape; number is its reverse.
func index(i int, shape []int) []int {
	at := make([]int, len(shape))
	for k := len(shape) - 1; k >= 0; k-- {
		at[k] = i % shape[k]
		i /= shape[k]
	}
	return at
}

func number(at, shape []int) int {
	n := 0
	for k := range shape {
		n = n*shape[k] + at[k]
	}
	return n
}

// factors returns a random shape of n elements.
func factors(r *rand.Rand, n int) []int {
	var shape []int
	for n > 1 && len(shape) < 4 {
		f := 1 + r.IntN(n)
		for n%f != 0 {
			f--
		}
		shape = append(shape, f)
		n /= f
	}
	if n > 1 || r.IntN(8) == 0 {
		shape = append(shape, n)
	}
	r.Shuffle(len(shape), func(i, j int) { shape[i], shape[j] = shape[j], shape[i] })
	return shape
}

// step takes a twin one random step further.
func (x twin) step(t *testing.T, r *rand.Rand) twin {
	must := func(y Tensor, err error) Tensor {
		require.NoError(t, err, x.steps)
		return y
	}
	switch op := r.IntN(7); {
	case op < 3:
		shape := factors(r, len(x.data))
		return x.pick(must(x.Reshape(shape...)), shape, fmt.Sprint("reshape", shape), func(i int) int { return i })
	case op == 3:
		dims := r.Perm(len(x.shape))
		shape := permuted(x.shape, dims)
		return x.pick(must(x.Transpose(dims...)), shape, fmt.Sprint("transpose", dims), func(i int) int {
			from := make([]int, len(dims))
			for k, at := range index(i, shape) {
				from[dims[k]] = at
			}
			return number(from, x.shape)
		})
	case op == 4 && len(x.shape) > 0:
		ranges, first, steps, shape := []Range{}, []int{}, []int{}, []int{}
		for _, size := range x.shape {
			start := r.IntN(size+1) / 2
			stop, by := start+1+r.IntN(size-start), 1+r.IntN(3)/2
			ranges = append(ranges, Span(start, stop).By(by))
			first, steps, shape = append(first, start), append(steps, by), append(shape, (stop-start+by-1)/by)
		}
		return x.pick(must(x.Slice(ranges...)), shape, fmt.Sprint("slice", ranges), func(i int) int {
			at := index(i, shape)
			for k := range at {
				at[k] = first[k] + at[k]*steps[k]
			}
			return number(at, x.shape)
		})
	case op == 5 && len(x.shape) > 0 && len(x.data) < 2000:
		dim := r.IntN(len(x.shape))
		size := x.shape[dim]
		other := must(must(x.Transpose()).Transpose())
		first := x.Tensor
		if r.IntN(2) == 0 { // a piece that is read through
			first = must(must(must(x.Transpose()).Reshape(len(x.data))).Reshape(permuted(x.shape, reversed(len(x.shape)))...))
			first = must(first.Transpose())
		}
		shape := slices.Clone(x.shape)
		shape[dim] *= 2
		return x.pick(must(Concat(dim, first, other)), shape, fmt.Sprint("concat", dim), func(i int) int {
			at := index(i, shape)
			at[dim] %= size
			return number(at, x.shape)
		})
	case op == 6:
		d := []DType{F64, F32, BF16, F16}[r.IntN(4)]
		return x.pick(must(x.Convert(d)), x.shape, d.String(), func(i int) int { return i })
	}
	return x
}

func reversed(n int) []int {
	dims := make([]int, n)
	for i := range dims {
		dims[i] = n - 1 - i
	}
	return dims
}

// require compares a tensor with its twin.
func (x twin) require(t *testing.T, calls *atomic.Int64) {
	require.Equal(t, len(x.shape), len(x.Shape()), x.steps)
	require.True(t, slices.Equal(x.shape, x.Shape()), x.steps)
	require.Equal(t, x.data, appended[float64](t, x.Tensor), x.steps)
	want := bytesOfTensor(t, x.Tensor)
	if v, err := View[byte](x.Tensor); err == nil {
		require.Equal(t, want, v, x.steps)
	} else {
		require.ErrorIs(t, err, errors.ErrUnsupported)
	}
	calls.Store(0)
	var file bytes.Buffer
	require.NoError(t, Write(&file, map[string]Tensor{"x": x.Tensor, "y": x.Tensor}, nil), x.steps)
	require.LessOrEqual(t, calls.Load(), int64(1), x.steps)
	f, err := Parse(file.Bytes())
	require.NoError(t, err)
	for _, name := range []string{"x", "y"} {
		y, err := f.Tensor(name)
		require.NoError(t, err)
		require.Equal(t, want, appended[byte](t, y), x.steps)
	}
	kept, _ := Tie(map[string]Tensor{"x": x.Tensor, "y": x.Tensor}, nil)
	require.Len(t, kept, 1, x.steps)
}

// TestReshapeAgainstNaive reads random expressions of Reshape, Transpose, Slice, Concat
// and Convert, from every kind of source, and compares each element with the twin.
func TestReshapeAgainstNaive(t *testing.T) {
	n := uint64(60)
	if testplatform.Long() {
		n = 1000
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(seed, 1))
		shape := factors(r, 1+r.IntN(720))
		data := make([]float32, 1)
		for _, size := range shape {
			data = make([]float32, len(data)*size)
		}
		want := make([]float64, len(data))
		for i := range data {
			data[i] = float32(r.IntN(257) - 128)
			want[i] = float64(data[i])
		}
		leaf, err := NewTensor(F32, shape, data)
		require.NoError(t, err)
		sources := sourcesOf(t, leaf)
		var calls *atomic.Int64
		sources["computed"], calls = counted(t, leaf)
		for kind, source := range sources {
			r := rand.New(rand.NewPCG(seed, 2))
			x := twin{source, shape, want, []string{fmt.Sprint("seed ", seed, " ", kind, shape)}}
			for range 2 + r.IntN(7) {
				x = x.step(t, r)
			}
			x.require(t, calls)
		}
	}
}

// TestReshapeWithoutReading: where strides can express the new shape, it stays a slice of
// its data: parts of it that are contiguous there have a View, and nothing else is read.
func TestReshapeWithoutReading(t *testing.T) {
	x := counting(t, U32, 6, 12)
	heads := must(mustSlice(t, x, All(), Span(0, 8)).Reshape(2, 3, 4, 2))
	row, err := View[uint32](mustSlice(t, heads, At(1), At(2)))
	require.NoError(t, err)
	require.Equal(t, []uint32{60, 61, 62, 63, 64, 65, 66, 67}, row)
	swapped := must(transposed(t, must(x.Reshape(2, 3, 12)), 1, 0, 2).Reshape(3, 2, 3, 4))
	row, err = View[uint32](mustSlice(t, swapped, At(2), At(1), At(0)))
	require.NoError(t, err)
	require.Equal(t, []uint32{60, 61, 62, 63}, row)

	joined, err := Concat(1, mustSlice(t, heads, All(), Span(0, 1)), mustSlice(t, heads, All(), Span(1, 3)))
	require.NoError(t, err)
	require.Equal(t, heads, joined, "parts are the tensor again")
	flat := must(transposed(t, x).Reshape(72))
	joined, err = Concat(0, must(flat.Part(0, 0, 2)), must(flat.Part(0, 1, 2)))
	require.NoError(t, err)
	require.Equal(t, flat, joined)
	_, err = View[uint32](flat)
	require.ErrorContains(t, err, "its elements were not contiguous before Reshape")
	require.ErrorIs(t, err, errors.ErrUnsupported)
}

// TestReshapePartReadsItsBytes: a part of what Reshape reads through asks a reader for
// its own rows only.
func TestReshapePartReadsItsBytes(t *testing.T) {
	x := counting(t, U32, 8, 1024, 64)
	r := &recordingReader{ReaderAt: bytes.NewReader(appended[byte](t, x))}
	y := must(transposed(t, must(NewTensorAt(U32, x.Shape(), r)), 0, 2, 1).Reshape(8*64, 1024))
	want := appended[uint32](t, must(transposed(t, x, 0, 2, 1).Reshape(8*64, 1024)))
	part := must(y.Part(0, 3, 8))
	require.Zero(t, r.bytes)
	require.Equal(t, want[3*64*1024:4*64*1024], appended[uint32](t, part))
	require.EqualValues(t, 64*1024*4, r.bytes)
	r.bytes = 0
	_, err := y.ReadAt(make([]byte, 4096), 4096*100)
	require.NoError(t, err)
	require.LessOrEqual(t, r.bytes, int64(64*1024*4), "a window does not read the rest")
	for name, z := range map[string]Tensor{"whole": y, "converted": must(must(y.Bitcast(F32)).Convert(F64))} {
		r.bytes = 0
		_, err := z.WriteTo(io.Discard)
		require.NoError(t, err)
		require.EqualValues(t, x.Size(), r.bytes, "each byte is read once: %s", name)
	}
}

// TestReshapeLarge reads columns of several blocks of what is read through, in memory
// and from a reader, by several goroutines.
func TestReshapeLarge(t *testing.T) {
	x := counting(t, U32, 512, 3, 1400)
	want := naiveTranspose(appended[byte](t, x), 4, x.Shape(), []int{2, 0, 1})
	for kind, source := range sourcesOf(t, x) {
		y := must(transposed(t, source, 2, 0, 1).Reshape(2800, 768))
		require.True(t, bytes.Equal(want, bytesOfTensor(t, y)), kind)
		column := mustSlice(t, y, All(), Span(256, 512))
		var rows []byte
		for i := range 2800 {
			rows = append(rows, want[(i*768+256)*4:][:256*4]...)
		}
		require.True(t, bytes.Equal(rows, bytesOfTensor(t, column)), kind)
		require.True(t, bytes.Equal(naiveTranspose(rows, 4, []int{2800, 256}, []int{1, 0}), bytesOfTensor(t, transposed(t, column))), kind)
	}
}

// TestReshapeFails: an error of the data comes out as it does without Reshape.
func TestReshapeFails(t *testing.T) {
	failure := errors.New("failure")
	x, err := NewTensorFunc(U32, []int{4, 6}, func([]uint32) error { return failure })
	require.NoError(t, err)
	y := must(transposed(t, x).Reshape(3, 8))
	for name, z := range map[string]Tensor{"whole": y, "column": mustSlice(t, y, All(), Span(1, 3)), "transposed": transposed(t, y)} {
		_, err := Append[uint32](nil, z)
		require.ErrorIs(t, err, failure, name)
		require.EqualError(t, err, "safetensors: failure", name)
	}
	name := writeTemp(t, map[string]Tensor{"x": counting(t, U32, 4, 6)})
	f, err := Open(name)
	require.NoError(t, err)
	z, err := f.Tensor("x")
	require.NoError(t, err)
	z = mustSlice(t, must(transposed(t, z).Reshape(3, 8)), All(), Span(1, 3))
	require.NoError(t, f.Close())
	_, err = z.WriteTo(io.Discard)
	require.EqualError(t, err, fmt.Sprintf("safetensors: tensor \"x\" of %s: file already closed", name))
}
