package safetensors

import (
	"iter"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors/internal/stride"
)

// A gather lists the bytes of a tensor with strides, in row-major order, as runs of adjacent bytes
// that nested loops visit. The strides of its loops are in bytes.
type gather struct {
	run   int64         // size of a run in bytes
	loops []stride.Loop // outermost loop first; all have N ≥ 2
}

// add adds l as the innermost loop, and merges it with the loop around it if possible.
func (g *gather) add(l stride.Loop) {
	if k := len(g.loops) - 1; k >= 0 && g.loops[k].Stride == l.N*l.Stride {
		g.loops[k] = stride.Loop{N: g.loops[k].N * l.N, Stride: l.Stride}
	} else if l.N > 1 {
		g.loops = append(g.loops, l)
	}
}

// join merges runs that are adjacent into one.
func (g *gather) join() {
	for k := len(g.loops) - 1; k >= 0 && g.loops[k].Stride == g.run; k-- {
		g.run *= g.loops[k].N
		g.loops = g.loops[:k]
	}
}

// inOrder reports whether the runs follow one another in the data, without
// overlaps: nothing is transposed.
func (g *gather) inOrder() bool {
	span := g.run // bytes that the inner loops span
	for _, l := range slices.Backward(g.loops) {
		if l.Stride < span {
			return false
		}
		span += (l.N - 1) * l.Stride
	}
	return true
}

// scaled returns n × a / b, rounded down, and whether the quotient is whole. It is right even if
// the product n × a would overflow. For example, scaled(n, bits, 8) is the number of bytes of n
// elements.
func scaled(n, a, b int64) (result int64, whole bool) {
	return n/b*a + n%b*a/b, n%b*a%b == 0
}

// columns returns the size in bytes of the blocks into which a transposed matrix is best cut. It
// does not exceed the limit, most. If that is large enough, a block has whole columns, and enough
// of them to use whole cache lines of each row.
func (g *gather) columns(most int64) int64 {
	const row = 256
	unit, step, nearest := g.run, g.run, int64(math.MaxInt64)
	for _, l := range slices.Backward(g.loops) {
		if l.Stride < nearest {
			unit, nearest = step, l.Stride
		}
		step *= l.N
	}
	unit *= max(1, row/g.run)
	return max(most/unit*unit, min(most, unit))
}

// size returns the number of bytes that g gathers.
func (g *gather) size() int64 {
	n := g.run
	for _, l := range g.loops {
		n *= l.N
	}
	return n
}

// extent returns the number of bytes from the first one that g gathers to the last one, gaps
// included.
func (g *gather) extent() int64 {
	n := g.run
	for _, l := range g.loops {
		n += (l.N - 1) * l.Stride
	}
	return n
}

func (g *gather) contiguous() bool { return len(g.loops) == 0 }

// A line is one pass of the innermost loop, or a part of it. It has count runs, each of which is
// run bytes long. The first run starts at the offset off, and each other run starts stride bytes
// after the start of the run before it.
type line struct{ off, run, stride, count int64 }

func (l line) size() int64 { return l.run * l.count }

// span returns the number of bytes from the first one of the line to its last one, gaps included.
func (l line) span() int64 { return (l.count-1)*l.stride + l.run }

// lines yields the lines that make up n bytes of g from position pos on. Their offsets count from
// the start of the data, in which g starts at base. g must have at least one loop.
func (g *gather) lines(base, pos, n int64) iter.Seq[line] {
	return func(yield func(line) bool) {
		inner := g.loops[len(g.loops)-1]
		for pos, n := pos, n; n > 0; {
			number, within := pos/g.run, pos%g.run
			l := line{off: base + g.runAt(number), run: g.run, stride: inner.Stride}
			if within > 0 || n < g.run {
				l.off += within
				l.run, l.count = min(g.run-within, n), 1
			} else {
				l.count = min(n/g.run, inner.N-number%inner.N)
			}
			if !yield(l) {
				return
			}
			pos += l.size()
			n -= l.size()
		}
	}
}

// runs yields the runs of g that fill dst, from position pos of g on: the offset of each run in the
// data, in which g starts at base, and the part of dst for it.
func (g *gather) runs(dst []byte, pos, base int64) iter.Seq2[int64, []byte] {
	return func(yield func(int64, []byte) bool) {
		dst := dst
		for l := range g.lines(base, pos, int64(len(dst))) {
			for i := range l.count {
				if !yield(l.off+i*l.stride, dst[:l.run:l.run]) {
					return
				}
				dst = dst[l.run:]
			}
		}
	}
}

// runAt returns the offset in bytes at which a run starts, counted from the start of the first run.
// number counts the runs from 0, in the order of the result.
func (g *gather) runAt(number int64) int64 {
	off := int64(0)
	for i := len(g.loops) - 1; i >= 0; i-- {
		off += number % g.loops[i].N * g.loops[i].Stride
		number /= g.loops[i].N
	}
	return off
}

// copyFrom gathers a line from memory. base is the offset in the data buffer at which the slice
// from starts.
func (l line) copyFrom(dst, from []byte, base int64) {
	stride.Line(dst, from[l.off-base:][:l.span()], int(l.run), int(l.stride), int(l.count))
}

// dense reports whether it is cheaper to read the gaps between the runs than to skip them. That
// is so if a gap is shorter than a page, which disks read as a whole, or if the runs are at least
// a quarter of the bytes.
func (l line) dense() bool {
	const (
		page    = 4 << 10
		largest = 16 << 10 // largest gap in bytes; beyond it, reading rows of 28 kB one by one was twice as fast
	)
	gap := l.stride - l.run
	return gap < page || l.run*4 >= l.stride && gap <= largest
}
