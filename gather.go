package safetensors

import (
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors/internal/stride"
)

// A gather lists the bytes of a slice in row-major order: runs of adjacent bytes,
// found by nested loops.
type gather struct {
	run   int64         // bytes of a run
	loops []stride.Loop // the outermost first; all have N ≥ 2
}

// gather merges the dimensions of t, which has elements and strides, into as few loops and
// as long runs as possible. If a run does not fill whole bytes, that is an error.
func (t Tensor) gather() (g gather, err error) {
	bits := int64(t.sourceDType().Bits())
	run, outer := int64(1), len(t.shape) // elements of a run; the dimensions outside of it
	for outer > 0 && (t.shape[outer-1] == 1 || t.strides[outer-1] == run) {
		outer--
		run *= int64(t.shape[outer])
	}
	var ok bool
	if g.run, ok = scaled(run, bits, 8); !ok {
		return g, fmt.Errorf("runs of %d elements of %d bits do not end on a byte boundary", run, bits)
	}
	for i, step := range t.strides[:outer] {
		n := int64(t.shape[i])
		size, ok := scaled(step, bits, 8)
		if !ok && n > 1 {
			return g, fmt.Errorf("every %d-th element of %d bits does not start on a byte boundary", step, bits)
		}
		g.add(stride.Loop{N: n, Stride: size})
	}
	return g, nil
}

// add puts a loop into the innermost one, merged with that where it continues it.
func (g *gather) add(l stride.Loop) {
	if k := len(g.loops) - 1; k >= 0 && g.loops[k].Stride == l.N*l.Stride {
		g.loops[k] = stride.Loop{N: g.loops[k].N * l.N, Stride: l.Stride}
	} else if l.N > 1 {
		g.loops = append(g.loops, l)
	}
}

// join makes one run of runs that are adjacent.
func (g *gather) join() {
	for k := len(g.loops) - 1; k >= 0 && g.loops[k].Stride == g.run; k-- {
		g.run *= g.loops[k].N
		g.loops = g.loops[:k]
	}
}

// inOrder reports whether the runs follow one another in the data, without
// overlaps: nothing is transposed.
func (g *gather) inOrder() bool {
	span := g.run // of the loops further in
	for _, l := range slices.Backward(g.loops) {
		if l.Stride < span {
			return false
		}
		span += (l.N - 1) * l.Stride
	}
	return true
}

// scaled returns n × a / b, rounded down, and whether it is whole. n × a may overflow. The bytes
// of n elements are scaled(n, bits, 8).
func scaled(n, a, b int64) (result int64, whole bool) {
	return n/b*a + n%b*a/b, n%b*a%b == 0
}

// columns returns the size of blocks of at most most bytes into which a transposed
// matrix is best cut: they have whole columns, and enough of them for whole cache
// lines of its rows.
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

// size returns the bytes that g gathers.
func (g *gather) size() int64 {
	n := g.run
	for _, l := range g.loops {
		n *= l.N
	}
	return n
}

// extent returns how many bytes there are from the first that g gathers to the last.
func (g *gather) extent() int64 {
	n := g.run
	for _, l := range g.loops {
		n += (l.N - 1) * l.Stride
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

// lines yields the lines that make up n bytes of g from position pos on, in data that
// starts at base. There is a loop.
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

// runs yields the runs that make up dst, from position pos on, with their offsets
// in data that starts at base.
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

// runAt returns where a run starts, by its number.
func (g *gather) runAt(number int64) int64 {
	off := int64(0)
	for i := len(g.loops) - 1; i >= 0; i-- {
		off += number % g.loops[i].N * g.loops[i].Stride
		number /= g.loops[i].N
	}
	return off
}

// copyFrom gathers a line from memory whose first byte is number base of the data
// buffer.
func (l line) copyFrom(dst, from []byte, base int64) {
	stride.Line(dst, from[l.off-base:][:l.span()], int(l.run), int(l.stride), int(l.count))
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
