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
	"github.com/gosafetensors/safetensors/internal/osfile"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A layout describes where the elements of a tensor lie in its storage: element (i, j, …) is the
// element at index offset + i×strides[0] + j×strides[1] + … there. If a stride is 0, all indices of
// that dimension select the same element.
type layout struct {
	offset  int64
	shape   []int
	strides []int64
}

// check returns an error if an element of the tensor lies outside a storage of n elements of width
// bytes.
func (l layout) check(n int64, width int) error {
	if len(l.strides) != len(l.shape) {
		return fmt.Errorf("%d strides for %d dimensions", len(l.strides), len(l.shape))
	}
	most := math.MaxInt64 / int64(width)
	if l.offset < 0 || l.offset > most {
		return errors.New("its offset overflows")
	}
	empty := slices.Contains(l.shape, 0)
	size, last := int64(1), l.offset
	for i, dim := range l.shape {
		steps, stride := int64(dim)-1, l.strides[i]
		switch {
		case stride < 0 || stride > most:
			return errors.New("its strides overflow")
		case dim < 0:
			return fmt.Errorf("dimension %d has size %d", i, dim)
		case !empty && (size > most/int64(dim) || stride > 0 && steps > (most-last)/stride):
			return errors.New("its size overflows 64 bits")
		}
		size *= int64(dim)
		last += steps * stride
	}
	if !empty && last >= n {
		return fmt.Errorf("its last element ends at byte %d of a storage of %d bytes", uint64(last+1)*uint64(width), n*int64(width))
	}
	return nil
}

// padding is the factor by which a storage is lengthened with zeros. A view of a storage as rows
// needs these zeros if its last row ends after the storage. It never selects them.
const padding = 2

// view returns the tensor of a layout that check has accepted for a storage. It views the storage
// as rows of the largest stride, each of these as rows of the next stride, and so on. It then
// selects a range of each row, and puts the dimensions in order.
func (l layout) view(storage safetensors.Tensor) (safetensors.Tensor, error) {
	if slices.Contains(l.shape, 0) {
		return safetensors.NewTensor(storage.DType(), l.shape, []byte{})
	}
	order := l.order()
	shape, ranges, count, ok := l.rows(order)
	if !ok || l.offset+count > int64(storage.Len()) {
		return l.gathered(storage)
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

// rows returns the shape in which count adjacent elements have the dimensions of l in the given
// order, and the ranges to select from that shape. If rows overlap or repeat there is no such
// shape, and ok is false.
func (l layout) rows(order []int) (shape []int, ranges []safetensors.Range, count int64, ok bool) {
	row := int64(1) // number of elements in a step of the last dimension of shape
	count = 1
	for _, dim := range order {
		n, stride := int64(l.shape[dim]), l.strides[dim]
		switch {
		case n == 1:
			shape, ranges = append(shape, 1), append(ranges, safetensors.All())
			continue
		case stride == 0:
			return nil, nil, 0, false
		case count == 1: // the first dimension: n rows
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

// pairs returns the F4 tensor of a view whose elements are bytes with two F4 numbers each.
func (l layout) pairs(view, storage safetensors.Tensor) (safetensors.Tensor, error) {
	if len(l.shape) == 0 {
		return view, prefix.Unsupported{Err: errors.New("it is a scalar of two 4-bit floats, which have no dimension")}
	}
	t, err := view.Bitcast(safetensors.F4)
	if err == nil {
		return t, nil
	}
	if view, err = l.gathered(storage); err != nil {
		return view, err
	}
	return view.Bitcast(safetensors.F4)
}

// gathered returns a tensor that gathers its elements from storage when they are read. It works for
// every layout.
func (l layout) gathered(storage safetensors.Tensor) (safetensors.Tensor, error) {
	return safetensors.NewTensorAt(storage.DType(), l.shape, gather{l, storage, int64(storage.DType().Bits() / 8)})
}

// A source holds the data of a storage: the size bytes that r reads.
type source struct {
	r          io.ReaderAt
	size       int64
	bigEndian  bool
	compressed bool
}

// tensor returns the elements of a storage as a tensor of one dimension. Zeros extend it, because
// the last row of a view may reach beyond the end of the storage: see padding. Errors of reading contain the
// name of the file, unless it is "".
func (s source) tensor(e element, name string) (safetensors.Tensor, error) {
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
	return safetensors.NewTensorAt(dtype, shape, osfile.NamedReader{ReaderAt: padded{s.r, n * int64(e.Width)}, File: name})
}

// A padded reader reads size bytes of r, and then zeros.
type padded struct {
	r    io.ReaderAt
	size int64
}

func (p padded) ReadAt(b []byte, off int64) (int, error) {
	stored := max(0, min(int64(len(b)), p.size-off))
	if stored > 0 {
		if n, err := p.r.ReadAt(b[:stored], off); n < int(stored) {
			return n, err
		}
	}
	clear(b[stored:])
	return len(b), nil
}
