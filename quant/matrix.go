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

// A matrix computes the numbers of a quantised tensor, which consists of one or more matrices. It
// is the io.ReaderAt of the result, whose elements are float32. It may be read concurrently.
type matrix struct {
	name     string // name of the result
	lines    int
	width    int
	values   *codes
	grids    [biases + 1]grid // grids of zero points, scales and biases; nil where there are none
	constant float32

	// A scale applies to a block of adjacent lines, whose number is height, and to one group of
	// positions in these lines. A group consists of adjacent positions, whose number is length,
	// unless the index assigns each position to a group.
	height, length int
	index          *once[[]int32] // nil if there is no index; returns nil if the positions of each group are adjacent
}

// operations are the funcs with which the numbers of the grids change the values, in this order.
var operations = [biases + 1]func(dst, numbers []float32, group, skip int){zeros: dequant.Sub, scales: dequant.Mul, biases: dequant.Add}

const (
	maxBlock = mem.BlockSize / 4 // largest number of elements that one call of block computes
	tile     = 16 << 10          // number of elements that fit the cache of a processor
)

// ReadAt implements io.ReaderAt. The range must lie within the result.
func (m *matrix) ReadAt(p []byte, off int64) (int, error) { return readRange(m, p, off) }

// readRange implements ReadAt by means of ReadRanges.
func readRange(r safetensors.RangeReader, p []byte, off int64) (int, error) {
	if err := r.ReadRanges(func(yield func(int64, []byte) bool) { yield(off, p) }); err != nil {
		return 0, err
	}
	return len(p), nil
}

// read has the signature of a grid, so that the numbers of m can be the scales or zero points of
// another matrix.
func (m *matrix) read(buf []float32, batch int, lines, positions span) ([]float32, error) {
	n := lines.len() * positions.len()
	dst := slices.Grow(buf[:0], n)[:n]
	return dst, m.block(dst, positions.len(), batch, lines, positions)
}

// position returns the matrix, the line and the position of an element, given its index in the
// result.
func (m *matrix) position(number int64) (batch, line, position int) {
	all := number / int64(m.width)
	return int(all / int64(m.lines)), int(all % int64(m.lines)), int(number % int64(m.width))
}

// readIndex reads and checks the index, which contains the group of each column. It returns nil if
// each group consists of size adjacent columns. If mayBeEmpty is true, an index in which all
// elements are -1 means the same.
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

// groups returns the range of groups to which some positions belong, and the index, which is nil if
// the positions of each group are adjacent.
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

// A workspace holds the input for computing lines. Its memory is reused.
type workspace struct {
	values           stretch
	lines, positions span                  // ranges of the groups whose numbers are in numbers
	index            []int32               // group of each position; nil if the positions of each group are adjacent
	numbers          [biases + 1][]float32 // numbers of each grid for these groups
}

var workspaces = sync.Pool{New: func() any { return new(workspace) }}

// block sets dst to the numbers at some lines and positions of a matrix. It computes at most
// maxBlock elements. In dst, each line starts width elements after the one before.
func (m *matrix) block(dst []float32, width, batch int, lines, positions span) error {
	groups, index, err := m.groups(positions)
	if err != nil {
		return err
	}
	// An index may assign positions to groups that are far apart. If they span too many groups,
	// each half of the block is computed on its own, because it may need fewer groups.
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

// line sets dst to the numbers of one line, starting at position at.
func (m *matrix) line(ws *workspace, dst []float32, line, at int) {
	m.values.unpack(dst, &ws.values, line, at)
	first := (line/m.height - ws.lines.start) * ws.positions.len()
	if ws.index != nil { // layouts with an index have no biases
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

// ReadRanges implements safetensors.RangeReader. It computes neighboring ranges, such as a column
// of a matrix, in one block.
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

// A window is a block of the result that is computed in one step. It covers the pieces of several
// ranges of one ReadRanges call, if these pieces are close to each other in the result.
type window struct {
	m             *matrix
	batch         int
	rows, columns span
	pieces        []piece
	useful        int // number of elements in the pieces
}

// A piece is a part of a range. It lies within one row, or consists of whole rows.
type piece struct {
	off int64
	dst []byte
}

// add adds the first piece of a range, and returns the length of that piece in bytes. If joins is
// true, the piece may share the window with earlier pieces. The later pieces of a long range have
// windows of their own.
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
		// Computing a few thousand elements that nobody has asked for costs less than another
		// block.
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

// flush computes the window and copies it to its pieces. If there is one piece that consists of
// whole, aligned elements, it computes them in place.
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
		return tensorError{w.m.name, fmt.Errorf("tensor %s: %w", quote(w.m.name), prefix.Strip(err))}
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
