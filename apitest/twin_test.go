package apitest_test

import (
	"fmt"
	"slices"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// A twin is a lazy tensor and what it should be: its elements as the bits that they have,
// each moved alone.
type twin struct {
	Tensor
	dtype DType
	shape []int
	codes []uint64
	steps []string // how it was made
	bits  bool     // whether its bytes have elements of less than a byte, which may be refused
}

// became returns the twin after a step.
func (x twin) became(y Tensor, step string, shape []int, codes []uint64) twin {
	return twin{y, x.dtype, shape, codes, append(slices.Clip(x.steps), step), x.bits}
}

// plain returns a tensor in memory of what the twin should be.
func (x twin) plain(t testing.TB) Tensor {
	t.Helper()
	y, err := NewTensor(x.dtype, x.shape, x.bytes())
	require.NoError(t, err, x.steps)
	return y
}

// bytes returns the elements as a file has them: the lowest bits of the first come first.
func (x twin) bytes() []byte {
	width := x.dtype.Bits()
	out := make([]byte, len(x.codes)*width/8)
	for i, code := range x.codes {
		if width < 8 {
			for k := range width {
				out[(i*width+k)/8] |= byte(code>>k&1) << ((i*width + k) % 8)
			}
			continue
		}
		for k := range out[i*width/8:][:width/8] {
			out[i*width/8+k] = byte(code >> (8 * k))
		}
	}
	return out
}

// codesOf is the reverse of bytes.
func codesOf(dtype DType, data []byte) []uint64 {
	width := dtype.Bits()
	codes := make([]uint64, 8*len(data)/width)
	for i := range codes {
		if width < 8 {
			for k := range width {
				at := i*width + k
				codes[i] |= uint64(data[at/8]>>(at%8)&1) << k
			}
			continue
		}
		for k := range width / 8 {
			codes[i] |= uint64(data[i*width/8+k]) << (8 * k)
		}
	}
	return codes
}

// elements returns how many a shape has.
func elements(shape []int) int {
	n := 1
	for _, size := range shape {
		n *= size
	}
	return n
}

// strides returns how many elements lie between two neighbors of each dimension.
func strides(shape []int) []int {
	out := make([]int, len(shape))
	for k := range shape {
		out[k] = elements(shape[k+1:])
	}
	return out
}

// gathered appends the codes at base and the offsets of all dimensions, in order.
func gathered(dst, codes []uint64, base int, offsets [][]int) []uint64 {
	if len(offsets) == 0 {
		return append(dst, codes[base])
	}
	for _, off := range offsets[0] {
		dst = gathered(dst, codes, base+off, offsets[1:])
	}
	return dst
}

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
	for i := start; i < stop; i += min(n.step, stop-i) {
		list = append(list, i)
	}
	return list, true
}

// slice selects by ranges, which may be errors: then the twin stays as it is. Elements of
// less than a byte may be refused, with a reason.
func (x twin) slice(t testing.TB, ranges ...naiveRange) twin {
	t.Helper()
	list, offsets, shape, valid := []Range{}, [][]int{}, []int{}, len(ranges) <= len(x.shape)
	for _, r := range ranges {
		list = append(list, r.Range())
	}
	for k, stride := range strides(x.shape) {
		r := naiveRange{step: 1}
		if k < len(ranges) {
			r = ranges[k]
		}
		at, ok := r.indices(x.shape[k])
		valid = valid && ok
		if r.kind != 2 {
			shape = append(shape, len(at))
		}
		for i := range at {
			at[i] *= stride
		}
		offsets = append(offsets, at)
	}
	y, err := x.Slice(list...)
	if valid && err != nil && x.bits {
		require.Regexp(t, "on a byte boundary|do not fill whole bytes", err.Error(), x.steps)
		return x
	}
	require.Equal(t, valid, err == nil, "%v %v: %v", x.steps, list, err)
	if !valid {
		return x
	}
	return x.became(y, fmt.Sprint("slice", list), shape, gathered(make([]uint64, 0, elements(shape)), x.codes, 0, offsets))
}

// transpose moves dimensions.
func (x twin) transpose(t testing.TB, dims ...int) twin {
	t.Helper()
	y, err := x.Transpose(dims...)
	if err != nil && x.bits {
		require.Regexp(t, "do not end on a byte boundary|do not fill whole bytes", err.Error(), x.steps)
		return x
	}
	require.NoError(t, err, x.steps)
	from := strides(x.shape)
	shape, offsets := make([]int, len(dims)), make([][]int, len(dims))
	for k, dim := range dims {
		shape[k] = x.shape[dim]
		for i := range shape[k] {
			offsets[k] = append(offsets[k], i*from[dim])
		}
	}
	return x.became(y, fmt.Sprint("transpose", dims), shape, gathered(make([]uint64, 0, elements(shape)), x.codes, 0, offsets))
}

// reshape gives the same elements another shape.
func (x twin) reshape(t testing.TB, shape ...int) twin {
	t.Helper()
	y, err := x.Reshape(shape...)
	require.NoError(t, err, x.steps)
	return x.became(y, fmt.Sprint("reshape", shape), shape, x.codes)
}

// concat joins the twin with others along a dimension.
func (x twin) concat(t testing.TB, dim int, others ...twin) twin {
	t.Helper()
	var tensors []Tensor
	steps := []string{"concat", fmt.Sprint(dim)}
	shape := slices.Clone(x.shape)
	shape[dim] = 0
	pieces := append([]twin{x}, others...)
	for _, p := range pieces {
		x.bits = x.bits || p.bits
		tensors = append(tensors, p.Tensor)
		shape[dim] += p.shape[dim]
		steps = append(steps, fmt.Sprint(p.steps))
	}
	y, err := Concat(dim, tensors...)
	if err != nil && x.bits {
		require.ErrorContains(t, err, "do not fill whole bytes", x.steps)
		return x
	}
	require.NoError(t, err, steps)
	codes := make([]uint64, 0, elements(shape))
	rows := elements(shape[:dim])
	for row := range rows {
		for _, p := range pieces {
			n := len(p.codes) / rows
			codes = append(codes, p.codes[row*n:][:n]...)
		}
	}
	return twin{y, x.dtype, shape, codes, steps, x.bits}
}

// cast reads the bits as another dtype. A lazy tensor may say that its bytes do not lie
// so, but not if elements stay as long as they were and are not converted.
func (x twin) cast(t testing.TB, d DType) twin {
	t.Helper()
	y, err := x.Bitcast(d)
	if err != nil {
		require.ErrorContains(t, err, fmt.Sprintf("casting %v to %v: ", x.Tensor, d), x.steps)
		if d.Bits() == x.dtype.Bits() {
			require.ErrorContains(t, err, "its elements are converted as they are read", x.steps)
		}
		return x
	}
	shape := slices.Clone(x.shape)
	if last := len(shape) - 1; last >= 0 {
		shape[last] = shape[last] * x.dtype.Bits() / d.Bits()
	}
	to := x.became(y, "cast "+d.String(), shape, codesOf(d, x.bytes()))
	to.dtype, to.bits = d, x.bits || d.Bits() < 8
	return to
}

// convert rounds floats as those of small tensors in memory are, which other tests check.
func (x twin) convert(t testing.TB, d DType) twin {
	t.Helper()
	y, err := x.Convert(d)
	if !x.dtype.IsFloat() && x.dtype != d {
		require.ErrorContains(t, err, "converting ")
		return x
	}
	require.NoError(t, err, x.steps)
	to := x.became(y, d.String(), x.shape, nil)
	to.dtype = d
	for few := range slices.Chunk(x.bytes(), 3<<10) { // less than what is converted at once
		part := must(NewTensor(x.dtype, []int{len(few) * 8 / x.dtype.Bits()}, few))
		to.codes = append(to.codes, codesOf(d, appended[byte](must(part.Convert(d))))...)
	}
	return to
}

// requireShape compares the dtype, the shape and the sizes of the tensor with those of its twin.
func (x twin) requireShape(t testing.TB) {
	t.Helper()
	require.Equal(t, x.dtype, x.DType(), x.steps)
	require.True(t, slices.Equal(x.shape, x.Shape()), "%v: %v", x.steps, x.Shape())
	require.Equal(t, elements(x.shape), x.Len(), x.steps)
	require.EqualValues(t, len(x.codes)*x.dtype.Bits()/8, x.Size(), x.steps)
}

// requirePromise compares what the tensor gives with what it promises and with what its own
// shape and dtype demand, which no twin is needed for.
func (x twin) requirePromise(t testing.TB) {
	t.Helper()
	demanded := elements(x.Shape()) * x.DType().Bits() / 8
	require.EqualValues(t, demanded, x.Size(), x.steps)
	written := 0
	said, err := x.WriteTo(writerFunc(func(b []byte) (int, error) {
		written += len(b)
		return len(b), nil
	}))
	require.NoError(t, err, x.steps)
	require.Equal(t, demanded, written, x.steps)
	require.EqualValues(t, demanded, said, x.steps)
}

// watch has a func that is told of what is read.
func (x twin) watch() twin {
	return x.became(watched(x.Tensor, func(int) error { return nil }), "watched", x.shape, x.codes)
}
