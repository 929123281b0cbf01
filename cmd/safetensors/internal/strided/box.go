package strided

import (
	"cmp"
	"slices"
	"sync"
)

// A loop is an axis of a box: n steps, of from bytes in the source and to bytes in the
// destination. Lists of loops are in the order of the source, the innermost first.
type loop struct{ n, from, to int64 }

// each calls f for all steps of the loops, the first of the list innermost, until
// it fails.
func each(loops []loop, from, to int64, f func(from, to int64) error) error {
	k := len(loops) - 1
	if k < 0 {
		return f(from, to)
	}
	for range loops[k].n {
		if err := each(loops[:k], from, to, f); err != nil {
			return err
		}
		from, to = from+loops[k].from, to+loops[k].to
	}
	return nil
}

// limits are the sizes in bytes at which a gather changes its way. They decide how
// fast it is, never what it reads.
type limits struct {
	// buffer is how much is read before it is dealt out. Larger ones leave the
	// second-level cache.
	buffer int64

	// direct is the size from which a run is read to its place without a buffer
	// in between. It is at most that of a buffer.
	direct int64

	// gap is how large a gap between two runs is read with them, because that
	// costs less than one more read. From a read of enough bytes on, the number of
	// reads does not matter.
	gap, enough int64
}

var usual = limits{buffer: bufferSize, direct: 4 << 10, gap: 1 << 10, enough: 2 << 10}

const (
	bufferSize = 1 << 20

	// cacheLine is the distance by which packed reads are kept from starting at
	// multiples of a large power of two, whose cache lines displace one another.
	cacheLine = 64
)

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// box fills dst with the runs of the rank innermost axes at byte src, of which the
// outermost has only rows steps.
func (g *gather) box(dst []byte, rank int, rows, src int64) error {
	loops := make([]loop, 0, rank)
	for i, a := range g.axes[:rank] {
		if i == rank-1 {
			a.n = rows
		}
		if a.n > 1 {
			loops = append(loops, loop{a.n, a.stride, a.runs * g.run})
		}
	}
	slices.SortStableFunc(loops, func(a, b loop) int { return cmp.Compare(a.from, b.from) })
	if g.run >= g.direct {
		return each(loops, src, 0, func(from, to int64) error { return g.read(dst[to:][:g.run], from) })
	}
	t := g.newTile(loops)
	if t.whole == len(loops) {
		return g.tile(dst, t, src)
	}
	split := loops[t.whole]
	return each(loops[t.whole+1:], src, 0, func(from, to int64) error {
		for i := int64(0); i < split.n; i += t.steps {
			part := slices.Clone(loops[:t.whole+1])
			part[t.whole].n = min(t.steps, split.n-i)
			err := g.tile(dst[to+i*split.to:], g.newTile(part), from+i*split.from)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// A tile is a part of a box that one buffer holds, in one or several reads of span
// bytes: the first whole loops of the box and steps steps of the next.
type tile struct {
	span  int64
	reads []loop // of the reads: to is counted in the buffer
	deals []loop // of the runs: from is counted in the buffer
	whole int
	steps int64
}

// newTile returns the tile of a box. Runs that are adjacent, or nearly so, are read
// together, and as many reads are packed as the buffer takes.
func (g *gather) newTile(loops []loop) tile {
	t := tile{span: g.run}
	used := g.run // of the buffer
	for _, l := range loops {
		n, from := l.n, l.from
		switch {
		case l.from == 0: // the same bytes again
		case len(t.reads) == 0 && l.from-t.span <= g.gap && t.span < g.enough:
			n = min(n, 1+(g.buffer-t.span)/l.from)
			t.span += (n - 1) * l.from
			used = t.span
		default:
			if len(t.reads) == 0 {
				used = (used+cacheLine-1)/cacheLine*cacheLine + cacheLine
			}
			n, from = min(n, max(1, g.buffer/used)), used
			t.reads = append(t.reads, loop{n, l.from, used})
			used *= n
		}
		if n < l.n {
			t.steps = n
			return t
		}
		t.deals = append(t.deals, loop{n, from, l.to})
		t.whole++
	}
	return t
}

// tile reads a whole tile at byte src and deals out its runs.
func (g *gather) tile(dst []byte, t tile, src int64) error {
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	err := each(t.reads, src, 0, func(from, to int64) error { return g.read(buf[to:][:t.span], from) })
	if err == nil {
		deal(dst, buf[:], g.run, t.deals)
	}
	return err
}

// deal copies runs between their places in buf and in dst. Where the two orders
// differ it goes in squares, so that each cache line is filled while it is there.
func deal(dst, buf []byte, run int64, loops []loop) {
	if len(loops) == 0 {
		copy(dst[:run], buf)
		return
	}
	inner := 0 // the loop of adjacent runs in dst
	for i, l := range loops {
		if l.to < loops[inner].to {
			inner = i
		}
	}
	a := loops[inner]
	rest := slices.Delete(slices.Clone(loops), inner, inner+1)
	if inner == 0 || a.from == 0 { // the order is the same
		each(rest, 0, 0, func(from, to int64) error {
			copyRuns(dst[to:], buf[from:], run, a)
			return nil
		})
		return
	}
	b := rest[0]
	const side = 32
	each(rest[1:], 0, 0, func(from, to int64) error {
		for j := int64(0); j < b.n; j += side {
			for i := int64(0); i < a.n; i += side {
				part := loop{min(side, a.n-i), a.from, a.to}
				for k := j; k < min(j+side, b.n); k++ {
					copyRuns(dst[to+i*a.to+k*b.to:], buf[from+i*a.from+k*b.from:], run, part)
				}
			}
		}
		return nil
	})
}

// copyRuns copies the runs of one loop.
func copyRuns(dst, src []byte, run int64, l loop) {
	var i, k int64
	switch run {
	case 1:
		for range l.n {
			dst[k] = src[i]
			i, k = i+l.from, k+l.to
		}
	case 2:
		for range l.n {
			*(*[2]byte)(dst[k:]) = *(*[2]byte)(src[i:])
			i, k = i+l.from, k+l.to
		}
	case 4:
		for range l.n {
			*(*[4]byte)(dst[k:]) = *(*[4]byte)(src[i:])
			i, k = i+l.from, k+l.to
		}
	case 8:
		for range l.n {
			*(*[8]byte)(dst[k:]) = *(*[8]byte)(src[i:])
			i, k = i+l.from, k+l.to
		}
	default:
		for range l.n {
			copy(dst[k:][:run], src[i:])
			i, k = i+l.from, k+l.to
		}
	}
}
