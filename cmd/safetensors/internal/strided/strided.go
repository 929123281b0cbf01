// Package strided reads an array that is stored with strides, such as a transposed
// or sliced tensor, as the row-major bytes of a safetensors file.
package strided

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
)

// A Layout says where the elements of an array are: element (i, j, …) starts at
// byte Offset + i×Strides[0] + j×Strides[1] + …. A stride may be 0: then all
// indexes of that dimension are the same element.
type Layout struct {
	Width   int   // of an element, in bytes
	Shape   []int // dimensions, outermost first
	Offset  int64 // in bytes
	Strides []int64
}

// Fortran returns the layout of an array that is stored with the first index
// varying fastest. The shape must have passed safetensors.NewTensorAt or the like:
// its size does not overflow.
func Fortran(width int, shape []int) Layout {
	l := Layout{Width: width, Shape: shape, Strides: make([]int64, len(shape))}
	stride := int64(width)
	for i, n := range shape {
		l.Strides[i] = stride
		stride *= int64(n)
	}
	return l
}

// Rows returns the layout of an array that is stored in row-major order, with a shape as
// of Fortran.
func Rows(width int, shape []int) Layout {
	l := Layout{Width: width, Shape: shape, Strides: make([]int64, len(shape))}
	stride := int64(width)
	for i := len(shape) - 1; i >= 0; i-- {
		l.Strides[i] = stride
		stride *= int64(shape[i])
	}
	return l
}

// NewReader returns the elements of l in row-major order, as an io.ReaderAt. r
// holds size bytes, in which all elements must lie.
//
// A read takes constant memory besides its result. It is fastest for the large
// blocks in which a safetensors.Tensor reads: gathering a column costs a read of
// each row, whatever the number of adjacent columns.
func NewReader(r io.ReaderAt, size int64, l Layout) (io.ReaderAt, error) {
	elements, err := l.check(size)
	if err != nil {
		return nil, err
	}
	g := &gather{r: r, run: int64(l.Width), first: l.Offset, size: elements * int64(l.Width), limits: usual}
	if elements == 0 {
		return g, nil
	}
	for i := len(l.Shape) - 1; i >= 0; i-- {
		g.add(int64(l.Shape[i]), l.Strides[i])
	}
	if len(g.axes) == 0 {
		return io.NewSectionReader(r, g.first, g.size), nil
	}
	return g, nil
}

// check returns the number of elements, unless one lies outside of size bytes.
func (l Layout) check(size int64) (elements int64, err error) {
	if len(l.Strides) != len(l.Shape) {
		return 0, fmt.Errorf("%d strides for %d dimensions", len(l.Strides), len(l.Shape))
	}
	if l.Offset < 0 {
		return 0, fmt.Errorf("negative offset %d", l.Offset)
	}
	n, last, over := uint64(l.Width), uint64(l.Offset), uint64(0)
	for i, dim := range l.Shape {
		if dim < 0 || l.Strides[i] < 0 {
			return 0, fmt.Errorf("dimension %d has size %d and stride %d", i, dim, l.Strides[i])
		}
		if dim == 0 {
			return 0, nil
		}
	}
	for i, dim := range l.Shape {
		hi, lo := bits.Mul64(n, uint64(dim))
		n, over = lo, over|hi|lo>>63
		hi, lo = bits.Mul64(uint64(dim-1), uint64(l.Strides[i]))
		over |= hi | lo>>63
		last += lo
		over |= last >> 63
	}
	if over != 0 {
		return 0, errors.New("its size overflows 64 bits")
	}
	if last+uint64(l.Width) > uint64(size) {
		return 0, fmt.Errorf("its last element ends at byte %d of a storage of %d bytes", last+uint64(l.Width), size)
	}
	return int64(n) / int64(l.Width), nil
}

// A gather reads runs of adjacent bytes, found by nested loops, as one sequence.
type gather struct {
	r     io.ReaderAt
	first int64 // byte at which the first run starts
	run   int64 // bytes of a run
	size  int64 // bytes of all runs
	axes  []axis
	limits
}

// An axis is one loop of a gather: n ≥ 2 steps of stride bytes. The gather's are
// innermost first. runs is the number of runs in one step.
type axis struct{ n, stride, runs int64 }

// add puts a loop around those that are there, merged with the outermost of them
// where it continues it.
func (g *gather) add(n, stride int64) {
	k := len(g.axes) - 1
	switch {
	case n == 1:
	case k < 0 && stride == g.run:
		g.run *= n
	case k >= 0 && stride == g.axes[k].n*g.axes[k].stride:
		g.axes[k].n *= n
	case k < 0:
		g.axes = append(g.axes, axis{n, stride, 1})
	default:
		g.axes = append(g.axes, axis{n, stride, g.axes[k].n * g.axes[k].runs})
	}
}

// ReadAt implements io.ReaderAt.
func (g *gather) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("negative offset %d", off)
	}
	rest := p[:max(0, min(int64(len(p)), g.size-off))]
	for len(rest) > 0 && err == nil {
		number, within := off/g.run, off%g.run
		var m int64
		if runs := int64(len(rest)) / g.run; within > 0 || runs == 0 {
			m = min(g.run-within, int64(len(rest)))
			err = g.read(rest[:m], g.runAt(number)+within)
		} else {
			m = runs * g.run
			err = g.fill(rest[:m], len(g.axes), g.first, number, runs)
		}
		if err == nil {
			rest, off, n = rest[m:], off+m, n+int(m)
		}
	}
	if err == nil && n < len(p) {
		err = io.EOF
	}
	return n, err
}

// runAt returns the first byte of a run, by its number.
func (g *gather) runAt(number int64) int64 {
	off := g.first
	for _, a := range g.axes {
		off += number / a.runs % a.n * a.stride
	}
	return off
}

// read reads exactly len(p) bytes.
func (g *gather) read(p []byte, off int64) error { return readFull(g.r, p, off) }

// fill fills dst with count runs from number first on, counted within the rank
// innermost axes at byte src. Together they are a few boxes: the rest of a row,
// whole rows, the start of a row.
func (g *gather) fill(dst []byte, rank int, src, first, count int64) error {
	if rank == 0 {
		return g.read(dst, src)
	}
	outer := g.axes[rank-1]
	for count > 0 {
		i, within := first/outer.runs, first%outer.runs
		at := src + i*outer.stride
		var n int64
		var err error
		if rows := count / outer.runs; within > 0 || rows == 0 {
			n = min(outer.runs-within, count)
			err = g.fill(dst[:n*g.run], rank-1, at, within, n)
		} else {
			n = rows * outer.runs
			err = g.box(dst[:n*g.run], rank, rows, at)
		}
		if err != nil {
			return err
		}
		dst, first, count = dst[n*g.run:], first+n, count-n
	}
	return nil
}
