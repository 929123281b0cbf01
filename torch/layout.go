package torch

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/stride"
)

// A layout says where the elements of a tensor are in its storage: element (i, j, …) is
// number offset + i×strides[0] + j×strides[1] + …. A stride may be 0: then all indices of
// that dimension are the same element.
type layout struct {
	offset  int64
	shape   []int
	strides []int64
}

// check returns the number of the last element plus one, 0 for a tensor without elements,
// unless it lies outside of a storage of n elements of width bytes.
func (l layout) check(n int64, width int) (end int64, err error) {
	if len(l.strides) != len(l.shape) {
		return 0, fmt.Errorf("%d strides for %d dimensions", len(l.strides), len(l.shape))
	}
	most := math.MaxInt64 / int64(width)
	if l.offset < 0 || l.offset > most {
		return 0, errors.New("its offset overflows")
	}
	empty := slices.Contains(l.shape, 0)
	size, last := int64(1), l.offset
	for i, dim := range l.shape {
		steps, stride := int64(dim)-1, l.strides[i]
		switch {
		case stride < 0 || stride > most:
			return 0, errors.New("its strides overflow")
		case dim < 0:
			return 0, fmt.Errorf("dimension %d has size %d", i, dim)
		case !empty && (size > most/int64(dim) || stride > 0 && steps > (most-last)/stride):
			return 0, errors.New("its size overflows 64 bits")
		}
		size *= int64(dim)
		last += steps * stride
	}
	switch {
	case empty:
		return 0, nil
	case last >= n:
		return 0, fmt.Errorf("its last element ends at byte %d of a storage of %d bytes", uint64(last+1)*uint64(width), n*int64(width))
	}
	return last + 1, nil
}

// padding is how many times its own length a storage is read beyond its end, by tensors
// whose rows would end there: those elements are never selected.
const padding = 2

// view returns the tensor of a layout that ends at element end of a storage. The storage is
// seen as rows of the largest stride, those as rows of the next one, and so on; of each row
// a range is selected, and the dimensions are put in order.
func (l layout) view(storage safetensors.Tensor, end int64) (safetensors.Tensor, error) {
	if slices.Contains(l.shape, 0) {
		return safetensors.NewTensor(storage.DType(), l.shape, []byte{})
	}
	order := l.order()
	shape, ranges, count, ok := l.rows(order)
	if !ok || l.offset+count > int64(storage.Len()) {
		return l.gathered(storage, end)
	}
	t, err := storage.Slice(safetensors.Span(int(l.offset), int(l.offset+count)))
	if err == nil {
		t, err = t.Reshape(shape...)
	}
	if err == nil {
		t, err = t.Slice(ranges...)
	}
	if err != nil {
		return t, err
	}
	back := make([]int, len(order))
	for i, dim := range order {
		back[dim] = i
	}
	return t.Transpose(back...)
}

// order returns the dimensions in the order of their strides, the largest first.
func (l layout) order() []int {
	order := make([]int, len(l.shape))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(l.strides[b], l.strides[a]) })
	return order
}

// rows returns the shape in which count adjacent elements have the dimensions of l in that
// order, and what to select of it. Those of overlapping or repeated rows have none.
func (l layout) rows(order []int) (shape []int, ranges []safetensors.Range, count int64, ok bool) {
	row := int64(1) // elements of a step of the last dimension of shape
	count = 1
	for _, dim := range order {
		n, stride := int64(l.shape[dim]), l.strides[dim]
		switch {
		case n == 1:
			shape, ranges = append(shape, 1), append(ranges, safetensors.All())
			continue
		case stride == 0:
			return nil, nil, 0, false
		case count == 1: // the first: n rows
			row, count = stride, n*stride
			shape, ranges = append(shape, int(n)), append(ranges, safetensors.All())
			continue
		}
		inner := gcd(row, stride)
		step, last := stride/inner, (n-1)*stride/inner
		if last >= row/inner {
			return nil, nil, 0, false
		}
		shape, ranges = append(shape, int(row/inner)), append(ranges, safetensors.Span(0, int(last)+1).By(int(step)))
		row = inner
	}
	return append(shape, int(row)), append(ranges, safetensors.At(0)), count, true
}

func gcd(a, b int64) int64 {
	for b > 0 {
		a, b = b, a%b
	}
	return a
}

// pairs returns the tensor of F4 of the bytes of a view, of two elements each.
func (l layout) pairs(view, storage safetensors.Tensor, end int64) (safetensors.Tensor, error) {
	if len(l.shape) == 0 {
		return view, errors.New("a scalar has no dimension of pairs")
	}
	t, err := view.Bitcast(safetensors.F4)
	if err == nil {
		return t, nil
	}
	if view, err = l.gathered(storage, end); err != nil {
		return view, err
	}
	return view.Bitcast(safetensors.F4)
}

// gathered returns the tensor of any layout, whose elements are gathered as they are read.
func (l layout) gathered(storage safetensors.Tensor, end int64) (safetensors.Tensor, error) {
	part, err := storage.Slice(safetensors.Span(int(l.offset), int(end)))
	if err != nil {
		return part, err
	}
	return safetensors.NewTensorAt(storage.DType(), l.shape, gather{l, part, int64(storage.DType().Bits() / 8)})
}

// A gather reads the elements of a layout, in order, out of the part of the storage that
// starts with the first.
type gather struct {
	layout
	part  safetensors.Tensor
	width int64
}

// ReadAt reads the part from the first to the last element that p needs, and gathers in
// memory. The Tensor asks for bytes that there are.
func (g gather) ReadAt(p []byte, off int64) (int, error) {
	first, last := off, off+int64(len(p))-1 // bytes, of an index of each dimension in turn
	size := g.width
	for _, n := range g.shape {
		size *= int64(n)
	}
	var begin, end int64
	loops := make([]stride.Loop, len(g.shape))
	for i, n := range g.shape {
		size /= int64(n)
		a, b := first/size, last/size
		begin, end = begin+a*g.strides[i], end+b*g.strides[i]
		loops[i] = stride.Loop{N: b - a + 1, Stride: g.strides[i] * g.width}
		off -= a * size
		first, last = first-a*size, last-a*size
		if a < b { // all of the dimensions within
			first, last = 0, size-1
		}
	}
	src := make([]byte, (end+1-begin)*g.width)
	if n, err := g.part.ReadAt(src, begin*g.width); n < len(src) {
		return 0, err
	}
	stride.Gather(p, src, g.width, loops, off)
	return len(p), nil
}

// A source is the data of a storage, of size bytes.
type source struct {
	r          io.ReaderAt
	size       int64
	bigEndian  bool
	compressed bool
}

// tensor returns all elements of a storage, and room for rows beyond its end.
func (s source) tensor(e element) (safetensors.Tensor, error) {
	n := s.size / int64(e.Width)
	dtype := e.dtype
	if dtype == safetensors.F4 {
		dtype = safetensors.U8
	}
	if n > math.MaxInt {
		return safetensors.Tensor{}, fmt.Errorf("a storage of %d elements is too large for this platform", n)
	}
	shape := []int{max(int(n), int(min(n, math.MaxInt/padding))*padding)}
	if s.bigEndian && e.Number > 1 {
		s.r = mem.Swapped{R: s.r, Size: e.Number}
	}
	return safetensors.NewTensorAt(dtype, shape, padded{s.r, n * int64(e.Width)})
}

// A padded reader has size bytes, and zeros after them.
type padded struct {
	r    io.ReaderAt
	size int64
}

func (p padded) ReadAt(b []byte, off int64) (int, error) {
	held := max(0, min(int64(len(b)), p.size-off))
	if held > 0 {
		if n, err := p.r.ReadAt(b[:held], off); n < int(held) {
			return n, err
		}
	}
	clear(b[held:])
	return len(b), nil
}
