package safetensors

import (
	"encoding/binary"
	"fmt"
	"io"
	"iter"
)

// A strided selects elements of a contiguous tensor: its element (i, j, …) is
// number first + i×strides[0] + j×strides[1] + ….
type strided struct {
	shape   []int
	first   int64
	strides []int64 // one for each dimension
}

// rowMajor returns the strides of a shape whose elements follow one another.
func rowMajor(shape []int) []int64 {
	strides := make([]int64, len(shape))
	n := int64(1)
	for i := len(shape) - 1; i >= 0; i-- {
		strides[i] = n
		n *= int64(shape[i]) // overflows only next to a zero dimension, where no stride matters
	}
	return strides
}

// A gather lists the bytes of a slice in row-major order: runs of adjacent bytes,
// found by nested loops.
type gather struct {
	first int64  // byte at which the first run starts
	run   int64  // bytes of a run
	loops []loop // the outermost first; all have n ≥ 2
}

// A loop is one dimension of a gather: n steps of stride bytes.
type loop struct{ n, stride int64 }

// newGather merges the dimensions of a slice into as few loops and as long runs
// as possible. The shape has no zero dimension. If a run does not fill whole
// bytes, broken says so.
func newGather(d DType, l *strided) (g gather, broken string) {
	bits := int64(d.Bits())
	run, outer := int64(1), len(l.shape) // elements of a run; the dimensions outside of it
	for outer > 0 && (l.shape[outer-1] == 1 || l.strides[outer-1] == run) {
		outer--
		run *= int64(l.shape[outer])
	}
	var ok bool
	if g.run, ok = wholeBytes(run, bits); !ok {
		return g, fmt.Sprintf("runs of %d elements of %d bits do not end on a byte boundary", run, bits)
	}
	if g.first, ok = wholeBytes(l.first, bits); !ok {
		return g, fmt.Sprintf("element %d of %d bits does not start on a byte boundary", l.first, bits)
	}
	for i := range outer {
		n := int64(l.shape[i])
		stride, ok := wholeBytes(l.strides[i], bits)
		if !ok && n > 1 {
			return g, fmt.Sprintf("every %d-th element of %d bits does not start on a byte boundary", l.strides[i], bits)
		}
		if k := len(g.loops) - 1; k >= 0 && g.loops[k].stride == n*stride {
			g.loops[k] = loop{g.loops[k].n * n, stride}
		} else if n > 1 {
			g.loops = append(g.loops, loop{n, stride})
		}
	}
	return g, ""
}

// wholeBytes returns the size in bytes of n elements of the given bits, if they
// end on a byte boundary. The product in bits may overflow, the one in bytes does
// not.
func wholeBytes(n, bits int64) (int64, bool) {
	return n/8*bits + n%8*bits/8, n%8*bits%8 == 0
}

// size returns the bytes that g gathers.
func (g *gather) size() int64 {
	n := g.run
	for _, l := range g.loops {
		n *= l.n
	}
	return n
}

func (g *gather) contiguous() bool { return len(g.loops) == 0 }

// A line is one pass of the innermost loop: count runs of run bytes, the first at
// off, each stride bytes after the one before.
type line struct{ off, run, stride, count int64 }

func (l line) size() int64 { return l.run * l.count }

// span returns the bytes from the first of the line to its last.
func (l line) span() int64 { return (l.count-1)*l.stride + l.run }

// lines calls f for the lines that make up n bytes of g from position pos on,
// until it fails.
func (g *gather) lines(pos, n int64, f func(line) error) error {
	inner := loop{n: 1}
	if k := len(g.loops) - 1; k >= 0 {
		inner = g.loops[k]
	}
	for n > 0 {
		number, within := pos/g.run, pos%g.run
		l := line{off: g.runAt(number), run: g.run, stride: inner.stride}
		if within > 0 || n < g.run {
			l.off += within
			l.run, l.count = min(g.run-within, n), 1
		} else {
			l.count = min(n/g.run, inner.n-number%inner.n)
		}
		if err := f(l); err != nil {
			return err
		}
		pos += l.size()
		n -= l.size()
	}
	return nil
}

// runs yields the runs that make up dst, from position pos on, with their offsets
// in a file whose data buffer starts at base.
func (g *gather) runs(dst []byte, pos, base int64) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		dst := dst
		g.lines(pos, int64(len(dst)), func(l line) error {
			for i := range l.count {
				if !yield(base+l.off+i*l.stride, dst[:l.run:l.run]) {
					return io.EOF // nobody sees it
				}
				dst = dst[l.run:]
			}
			return nil
		})
	}
}

// runAt returns the first byte of a run, by its number.
func (g *gather) runAt(number int64) int64 {
	off := g.first
	for i := len(g.loops) - 1; i >= 0; i-- {
		off += number % g.loops[i].n * g.loops[i].stride
		number /= g.loops[i].n
	}
	return off
}

// copyFrom gathers a line from memory whose first byte is number base of the data
// buffer.
func (l line) copyFrom(dst, from []byte, base int64) {
	src := from[l.off-base:][:l.span()]
	stride := int(l.stride)
	switch l.run {
	case 1:
		for i := range int(l.count) {
			dst[i] = src[i*stride]
		}
	case 2:
		for i := range int(l.count) {
			binary.NativeEndian.PutUint16(dst[2*i:], binary.NativeEndian.Uint16(src[i*stride:]))
		}
	case 4:
		for i := range int(l.count) {
			binary.NativeEndian.PutUint32(dst[4*i:], binary.NativeEndian.Uint32(src[i*stride:]))
		}
	case 8:
		for i := range int(l.count) {
			binary.NativeEndian.PutUint64(dst[8*i:], binary.NativeEndian.Uint64(src[i*stride:]))
		}
	default:
		run := int(l.run)
		for i := range int(l.count) {
			copy(dst[i*run:][:run], src[i*stride:])
		}
	}
}

// dense reports whether it is cheaper to read the gaps between the runs than to
// skip them: a gap is shorter than a page, which disks read as a whole, or the runs
// are a quarter or more of the bytes.
func (l line) dense() bool {
	const (
		page    = 4 << 10
		largest = 16 << 10 // rows of 28 kB with such gaps were read twice as fast one by one
	)
	gap := l.stride - l.run
	return gap < page || l.run*4 >= l.stride && gap <= largest
}
