package quant

import (
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A matrix computes the numbers of a quantised tensor: matrices of lines, as they are
// stored. It is the io.ReaderAt of the result, whose elements are float32.
type matrix struct {
	name       string // of the result
	lines      int
	width      int
	transposed bool // the result has the lines as columns

	values   *codes
	grids    [biases + 1]grid // zeros, scales and biases, nil if there are none
	constant float32

	// A scale is for a group of lines and one of positions.
	down, across grouping
}

// operations are what grids do to values, in this order.
var operations = [biases + 1]func(dst, numbers []float32, group, skip int){zeros: dequant.Sub, scales: dequant.Mul, biases: dequant.Add}

const (
	maxBlock = mem.BlockSize / 4 // elements that are computed in one go
	tile     = 16 << 10          // elements that stay in the cache
	tileRows = 64                // lines of a tile that is transposed: their elements fill some cache lines
)

// shape is that of a matrix of the result.
func (m *matrix) shape() (rows, columns int) {
	if m.transposed {
		return m.width, m.lines
	}
	return m.lines, m.width
}

func (m *matrix) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("tensor %s: %w", quote(m.name), prefix.Strip(err))
	}
	return err
}

// ReadAt implements io.ReaderAt for ranges within the result.
func (m *matrix) ReadAt(p []byte, off int64) (int, error) {
	if err := m.fill(p, off); err != nil {
		return 0, m.failed(err)
	}
	return len(p), nil
}

// fill fills p with bytes of the result. Elements that p is not aligned for, or has only
// parts of, are computed elsewhere.
func (m *matrix) fill(p []byte, off int64) error {
	first, skip := off/4, int(off%4)
	if dst, ok := mem.SliceOf[float32](p); ok && skip == 0 && len(p)%4 == 0 {
		return m.compute(dst, first)
	}
	memory := make([]float32, min(maxBlock, (skip+len(p)+3)/4))
	for len(p) > 0 {
		elements := memory[:min(len(memory), (skip+len(p)+3)/4)]
		if err := m.compute(elements, first); err != nil {
			return err
		}
		p = p[copy(p, mem.BytesOf(elements)[skip:]):]
		first += int64(len(elements))
		skip = 0
	}
	return nil
}

// inOrder puts the bytes of each element into the order of a file, or back, and returns them.
func inOrder(x []float32) []byte {
	b := mem.BytesOf(x)
	mem.Swap[float32](b)
	return b
}

// compute sets dst to the elements from number first on, with the bytes of each in the
// order of a file.
func (m *matrix) compute(dst []float32, first int64) error {
	for len(dst) > 0 {
		batch, r, column := m.position(first)
		rows, columns := m.shape()
		room, n := min(len(dst), maxBlock), 1
		c := span{column, min(columns, column+room)}
		if c.len() == columns {
			n = min(rows-r, room/columns)
		}
		part := dst[:n*c.len()]
		if err := m.block(part, batch, span{r, r + n}, c); err != nil {
			return err
		}
		inOrder(part)
		dst = dst[len(part):]
		first += int64(len(part))
	}
	return nil
}

// newMatrix returns one that is a grid of another one, with scales for so many positions each.
func newMatrix(values *codes, length int) *matrix {
	return &matrix{values: values, down: grouping{size: 1}, across: grouping{size: length}}
}

// read makes a matrix a grid.
func (m *matrix) read(dst []float32, batch int, lines, positions span) ([]float32, error) {
	old, n := len(dst), lines.len()*positions.len()
	dst = slices.Grow(dst, n)[:old+n]
	return dst, m.block(dst[old:], batch, lines, positions)
}

// position returns where an element of the result is.
func (m *matrix) position(number int64) (batch, row, column int) {
	rows, columns := m.shape()
	line := number / int64(columns)
	return int(line / int64(rows)), int(line % int64(rows)), int(number % int64(columns))
}

// A workspace is what lines are computed from, in memory that is used again.
type workspace struct {
	values           stretch
	lines, positions span                  // of groups
	numbers          [biases + 1][]float32 // of those
	row, tile        []float32
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// block sets dst to rows and columns of a matrix of the result, at most maxBlock
// elements.
func (m *matrix) block(dst []float32, batch int, rows, columns span) error {
	lines, positions := rows, columns
	if m.transposed {
		lines, positions = columns, rows
	}
	ws := workspaces.Get().(*workspace)
	defer workspaces.Put(ws)
	next := lines.len()
	for part := (span{stop: lines.start}); part.stop < lines.stop; next = 2 * part.len() {
		part = span{part.stop, min(part.stop+next, lines.stop)}
		err := m.groups(ws, part, positions)
		// The groups of an index may be far apart.
		for err == nil && part.len() > 1 && (ws.lines.len()*ws.positions.len() > maxBlock || ws.lines.len() > 16*part.len()) {
			part.stop -= part.len() / 2
			err = m.groups(ws, part, positions)
		}
		if err == nil {
			err = m.fetch(ws, batch, part, positions)
		}
		if err != nil {
			return err
		}
		if m.transposed {
			m.columns(ws, dst[part.start-lines.start:], lines.len(), part, positions)
		} else {
			m.rows(ws, dst[(part.start-lines.start)*positions.len():], part, positions)
		}
	}
	return nil
}

// groups finds the groups that lines need.
func (m *matrix) groups(ws *workspace, lines, positions span) (err error) {
	if ws.lines, err = m.down.over(lines); err == nil {
		ws.positions, err = m.across.over(positions)
	}
	return err
}

// fetch reads what lines need.
func (m *matrix) fetch(ws *workspace, batch int, lines, positions span) (err error) {
	if ws.values, err = m.values.fetch(ws.values.bytes, batch, lines, positions); err != nil {
		return err
	}
	for r, g := range m.grids {
		if g != nil && err == nil {
			ws.numbers[r], err = g.read(ws.numbers[r][:0], batch, ws.lines, ws.positions)
		}
	}
	return err
}

// rows sets dst to lines, one after another.
func (m *matrix) rows(ws *workspace, dst []float32, lines, positions span) {
	for line := lines.start; line < lines.stop; line++ {
		for at := positions.start; at < positions.stop; at += tile {
			n := min(tile, positions.stop-at)
			m.line(ws, dst[:n], line, at)
			dst = dst[n:]
		}
	}
}

// columns sets columns of dst, whose rows have width elements, to lines.
func (m *matrix) columns(ws *workspace, dst []float32, width int, lines, positions span) {
	const wide = tile / tileRows
	ws.tile = slices.Grow(ws.tile[:0], tile)[:tile]
	for line := lines.start; line < lines.stop; line += tileRows {
		height := min(tileRows, lines.stop-line)
		for at := positions.start; at < positions.stop; at += wide {
			n := min(wide, positions.stop-at)
			for i := range height {
				m.line(ws, ws.tile[i*n:][:n], line+i, at)
			}
			dequant.Transpose(dst[(at-positions.start)*width+line-lines.start:], width, ws.tile, n, height)
		}
	}
}

// line sets dst to the numbers of one line, from a position on.
func (m *matrix) line(ws *workspace, dst []float32, line, at int) {
	m.values.unpack(dst, &ws.values, line, at)
	first := (m.down.group(line) - ws.lines.start) * ws.positions.len()
	for r, operation := range operations {
		switch {
		case m.grids[r] == nil:
		case m.across.scattered():
			ws.row = m.across.expand(ws.row[:0], ws.numbers[r][first:], ws.positions.start, at, len(dst))
			operation(dst, ws.row, 1, 0)
		default:
			operation(dst, ws.numbers[r][first+at/m.across.size-ws.positions.start:], m.across.size, at%m.across.size)
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
		if err := w.add(off, p); err != nil {
			return m.failed(err)
		}
	}
	return m.failed(w.flush())
}

// A window is a block of the result that covers some ranges.
type window struct {
	m             *matrix
	batch         int
	rows, columns span
	ranges        []oneRange
	useful        int // elements of the ranges
}

type oneRange struct {
	off int64
	dst []byte
}

// add reads a range, at the latest in flush. It reads one that is no part of a row at
// once.
func (w *window) add(off int64, p []byte) error {
	n := len(p) / 4
	batch, r, c := w.m.position(off / 4)
	if _, columns := w.m.shape(); off%4 != 0 || len(p)%4 != 0 || c+n > columns {
		return w.m.fill(p, off)
	}
	rows := span{r, r + 1}
	columns := span{c, c + n}
	if len(w.ranges) > 0 {
		rows.start, columns.start = min(rows.start, w.rows.start), min(columns.start, w.columns.start)
		rows.stop, columns.stop = max(rows.stop, w.rows.stop), max(columns.stop, w.columns.stop)
	}
	// Up to a few thousand elements, one more that nobody asked for costs less than
	// another block.
	const free = 4096
	area := rows.len() * columns.len()
	if len(w.ranges) > 0 && (batch != w.batch || area > maxBlock || area > free+4*(w.useful+n) || len(w.ranges) == maxBlock/32) {
		if err := w.flush(); err != nil {
			return err
		}
		rows, columns = span{r, r + 1}, span{c, c + n}
	}
	w.batch, w.rows, w.columns = batch, rows, columns
	w.ranges = append(w.ranges, oneRange{off, p})
	w.useful += n
	return nil
}

func (w *window) flush() error {
	ranges := w.ranges
	w.ranges, w.useful = w.ranges[:0], 0
	if len(ranges) == 1 {
		return w.m.fill(ranges[0].dst, ranges[0].off)
	}
	if len(ranges) == 0 {
		return nil
	}
	width := w.columns.len()
	b := mem.NewBlock(4 * int64(w.rows.len()*width))
	defer b.Free()
	numbers, _ := mem.SliceOf[float32](b.Bytes) // blocks are aligned
	if err := w.m.block(numbers, w.batch, w.rows, w.columns); err != nil {
		return err
	}
	bytes := inOrder(numbers)
	for _, r := range ranges {
		_, row, column := w.m.position(r.off / 4)
		copy(r.dst, bytes[4*((row-w.rows.start)*width+column-w.columns.start):])
	}
	return nil
}
