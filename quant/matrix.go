package quant

import (
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A matrix computes the numbers of a quantised tensor: matrices of lines. It is the
// io.ReaderAt of the result, whose elements are float32.
type matrix struct {
	name     string // of the result
	lines    int
	width    int
	values   *codes
	grids    [biases + 1]grid // zeros, scales and biases, nil if there are none
	constant float32

	// A scale is for so many lines, and for a group of positions: so many adjacent ones, unless
	// an index gives the group of each.
	height, length int
	index          *once[[]int32] // nil if there is none; it holds nil if groups are adjacent
}

// operations are what grids do to values, in this order.
var operations = [biases + 1]func(dst, numbers []float32, group, skip int){zeros: dequant.Sub, scales: dequant.Mul, biases: dequant.Add}

const (
	maxBlock = mem.BlockSize / 4 // elements that are computed in one go
	tile     = 16 << 10          // elements that stay in the cache
)

// ReadAt implements io.ReaderAt for ranges within the result.
func (m *matrix) ReadAt(p []byte, off int64) (int, error) { return readRange(m, p, off) }

// readRange is ReadAt by way of ReadRanges.
func readRange(r safetensors.RangeReader, p []byte, off int64) (int, error) {
	if err := r.ReadRanges(func(yield func(int64, []byte) bool) { yield(off, p) }); err != nil {
		return 0, err
	}
	return len(p), nil
}

// inOrder puts the bytes of each element into the order of a file, or back, and returns them.
func inOrder(x []float32) []byte {
	b := mem.BytesOf(x)
	mem.Swap[float32](b)
	return b
}

// read makes a matrix a grid of another one.
func (m *matrix) read(buf []float32, batch int, lines, positions span) ([]float32, error) {
	n := lines.len() * positions.len()
	dst := slices.Grow(buf[:0], n)[:n]
	return dst, m.block(dst, positions.len(), batch, lines, positions)
}

// position returns where an element of the result is.
func (m *matrix) position(number int64) (batch, line, position int) {
	all := number / int64(m.width)
	return int(all / int64(m.lines)), int(all % int64(m.lines)), int(number % int64(m.width))
}

// readIndex reads and checks the index of groups, of which there are so many. It returns nil if
// they are adjacent, as in an index of -1 alone, where there may be such.
func readIndex(index safetensors.Tensor, groups, size int, mayBeEmpty bool) ([]int32, error) {
	number, err := safetensors.Append[int32](nil, index)
	if err != nil || mayBeEmpty && !slices.ContainsFunc(number, func(g int32) bool { return g != -1 }) {
		return nil, err
	}
	adjacent := true
	for i, g := range number {
		if g < 0 || int(g) >= groups {
			return nil, fmt.Errorf("the index puts column %d into group %d of %d", i, g, groups)
		}
		adjacent = adjacent && int(g) == i/size
	}
	if adjacent {
		return nil, nil
	}
	return number, nil
}

// groups returns the range of groups that positions touch, and the index if they are not adjacent.
func (m *matrix) groups(positions span) (_ span, index []int32, err error) {
	if m.index != nil {
		index, err = m.index.get()
	}
	if index == nil {
		return positions.over(m.length), nil, err
	}
	part := index[positions.start:positions.stop]
	return span{int(slices.Min(part)), int(slices.Max(part)) + 1}, index, nil
}

// A workspace is what lines are computed from, in memory that is used again.
type workspace struct {
	values           stretch
	lines, positions span                  // of groups
	index            []int32               // the group of each position, nil if they are adjacent
	numbers          [biases + 1][]float32 // of those
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// block sets dst, in rows of width elements, to a part of a matrix of at most maxBlock elements.
func (m *matrix) block(dst []float32, width, batch int, lines, positions span) error {
	groups, index, err := m.groups(positions)
	if err != nil {
		return err
	}
	// The groups of an index may be far apart.
	if n := positions.len() / 2; n > 0 && (groups.len() > 16*positions.len() || lines.over(m.height).len()*groups.len() > maxBlock) {
		if err := m.block(dst, width, batch, lines, span{positions.start, positions.start + n}); err != nil {
			return err
		}
		return m.block(dst[n:], width, batch, lines, span{positions.start + n, positions.stop})
	}
	ws := workspaces.Get().(*workspace)
	defer workspaces.Put(ws)
	ws.lines, ws.positions, ws.index = lines.over(m.height), groups, index
	ws.values, err = m.values.fetch(ws.values.bytes, batch, lines, positions)
	for r, g := range m.grids {
		if g != nil && err == nil {
			ws.numbers[r], err = g(ws.numbers[r], batch, ws.lines, groups)
		}
	}
	if err != nil {
		return err
	}
	for line := lines.start; line < lines.stop; line++ {
		row := dst[(line-lines.start)*width:][:positions.len()]
		for at := positions.start; at < positions.stop; at += tile {
			n := min(tile, positions.stop-at)
			m.line(ws, row[:n], line, at)
			row = row[n:]
		}
	}
	return nil
}

// line sets dst to the numbers of one line, from a position on.
func (m *matrix) line(ws *workspace, dst []float32, line, at int) {
	m.values.unpack(dst, &ws.values, line, at)
	first := (line/m.height - ws.lines.start) * ws.positions.len()
	if ws.index != nil { // no such layout has more than scales and zero points
		z, s := []float32(nil), ws.numbers[scales][first:]
		if m.grids[zeros] != nil {
			z = ws.numbers[zeros][first:]
		}
		for i, g := range ws.index[at:][:len(dst)] {
			v, group := dst[i], int(g)-ws.positions.start
			if z != nil {
				v -= z[group]
			}
			dst[i] = v * s[group]
		}
		return
	}
	for r, operation := range operations {
		if m.grids[r] != nil {
			operation(dst, ws.numbers[r][first+at/m.length-ws.positions.start:], m.length, at%m.length)
		}
	}
	if m.constant != 0 {
		dequant.Mul(dst, []float32{m.constant}, len(dst), 0)
	}
}

// ReadRanges implements safetensors.RangeReader. It computes neighboring ranges, such
// as a column of a matrix, in one block.
func (m *matrix) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	w := window{m: m}
	for off, p := range ranges {
		for joins := true; len(p) > 0; joins = false {
			n, err := w.add(off, p, joins)
			if err != nil {
				return err
			}
			p = p[n:]
			off += int64(n)
		}
	}
	return w.flush()
}

// A window is a block of the result that covers some pieces of ranges.
type window struct {
	m             *matrix
	batch         int
	rows, columns span
	pieces        []piece
	useful        int // elements of the pieces
}

// A piece is in one row, or in whole ones.
type piece struct {
	off int64
	dst []byte
}

// add adds the first piece of a range, and returns its length. The window may join it to those
// that it has; the following pieces of a long range stay alone.
func (w *window) add(off int64, p []byte, joins bool) (int, error) {
	skip := int(off % 4)
	room, height := min((skip+len(p)+3)/4, maxBlock), 1
	batch, r, c := w.m.position(off / 4)
	columns := span{c, min(w.m.width, c+room)}
	if columns.len() == w.m.width {
		height = min(w.m.lines-r, room/w.m.width)
	}
	rows, n := span{r, r + height}, height*columns.len()
	if len(w.pieces) > 0 {
		// Up to a few thousand elements, one more that nobody asked for costs less than
		// another block.
		const free = 4096
		all := span{min(c, w.columns.start), max(columns.stop, w.columns.stop)}
		area := (rows.stop - w.rows.start) * all.len()
		if !joins || batch != w.batch || area > min(maxBlock, free+4*(w.useful+n)) || len(w.pieces) == maxBlock/32 {
			if err := w.flush(); err != nil {
				return 0, err
			}
		} else {
			rows.start, columns = w.rows.start, all
		}
	}
	p = p[:min(len(p), 4*n-skip)]
	w.batch, w.rows, w.columns = batch, rows, columns
	w.pieces = append(w.pieces, piece{off, p})
	w.useful += n
	return len(p), nil
}

// flush computes the window: in place if it is one piece of whole, aligned elements.
func (w *window) flush() error {
	pieces := w.pieces
	w.pieces, w.useful = pieces[:0], 0
	if len(pieces) == 0 {
		return nil
	}
	width := w.columns.len()
	n := w.rows.len() * width
	numbers, aligned := mem.SliceOf[float32](pieces[0].dst)
	direct := aligned && len(pieces) == 1 && len(pieces[0].dst) == 4*n
	if !direct {
		b := mem.NewBlock(4 * int64(n))
		defer b.Free()
		numbers, _ = mem.SliceOf[float32](b.Bytes) // blocks are aligned
	}
	if err := w.m.block(numbers, width, w.batch, w.rows, w.columns); err != nil {
		return fmt.Errorf("tensor %s: %w", quote(w.m.name), prefix.Strip(err))
	}
	bytes := inOrder(numbers)
	for _, p := range pieces {
		if !direct {
			_, row, column := w.m.position(p.off / 4)
			copy(p.dst, bytes[4*((row-w.rows.start)*width+column-w.columns.start)+int(p.off%4):])
		}
	}
	return nil
}
