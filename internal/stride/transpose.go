package stride

const (
	// side is the number of rows and columns of a block. The pages of a block of this
	// size stay in the translation buffer of the processor, and its cache lines in the
	// second-level cache.
	side = 512

	// A tile takes four cache lines of the source from each row, because adjacent lines arrive sooner
	// than others, and fills up to eight cache lines of the result for each column. A tile is first
	// copied to a buffer: the rows of a matrix often start at multiples of a power of two, where
	// their lines evict one another from the first-level cache. The copy also prefetches the rows
	// of the next tile.
	tileSide   = 4 * 64 // size of a row in bytes
	tileHeight = 8 * 64 // largest size of a column in bytes
	tileRows   = 128    // largest number of rows, which limits columns of short runs
	rowPitch   = tileSide

	// large is the size in bytes from which on a result is written past the caches of the
	// processor: it does not fit into most of them, and the processor need not read its lines
	// before it writes them. In a smaller result the caches were faster by up to two thirds.
	large = 8 << 20
)

// A workspace holds a tile while it is transposed.
type workspace struct {
	rows    [tileRows * rowPitch]byte // the rows of the tile, rowPitch bytes apart
	columns []byte                    // its columns, adjacent, before they are written past the caches; or nil
}

// transpose fills dst with the runs of a matrix, column by column. The runs of a column are far
// apart in src and adjacent in dst; the runs of a row are adjacent in src and far apart in dst.
func transpose(dst, src []byte, run int, rows, columns loop, w *workspace) {
	for i := 0; i < rows.n; i += side {
		for j := 0; j < columns.n; j += side {
			r, c := rows, columns
			r.n, c.n = min(side, rows.n-i), min(side, columns.n-j)
			block(dst[i*int(r.to)+j*int(c.to):], src[i*r.from+j*c.from:], run, r, c, w)
		}
	}
}

// block transposes a part of a matrix, tile by tile.
func block(dst, src []byte, run int, rows, columns loop, w *workspace) {
	if columns.n*run < 8 || 8%run != 0 {
		for j := range columns.n {
			Line(dst[j*int(columns.to):], src[j*columns.from:], run, rows.from, rows.n)
		}
		return
	}
	height, width := min(tileHeight/run, tileRows), tileSide/run
	for j := 0; j < columns.n; j += width {
		n := min(width, columns.n-j)
		for i := 0; i < rows.n; i += height {
			m := min(height, rows.n-i)
			w.read(src[i*rows.from+j*columns.from:], run, rows.from, columns.from, m, n)
			w.write(dst[i*run+j*int(columns.to):], run, int(columns.to), m, n)
		}
	}
}

// read copies m rows of n runs from src to w.rows. In src, the rows start pitch bytes apart, and the
// runs of a row start step bytes apart.
func (w *workspace) read(src []byte, run, pitch, step, m, n int) {
	if step == run && n*run == rowPitch && farRows(w.rows[:], src, rowPitch, pitch, m) {
		return // farRows has copied all rows, and prefetched those of the next tile
	}
	for k := range m {
		row := src[k*pitch:]
		if step == run {
			copy(w.rows[k*rowPitch:][:n*run], row)
		} else {
			Line(w.rows[k*rowPitch:], row, run, step, n)
		}
	}
}

// write copies the n columns of the m rows in w.rows to dst, where they start pitch bytes apart.
func (w *workspace) write(dst []byte, run, pitch, m, n int) {
	size := m * run // size of a column in bytes
	if w.columns == nil || !wholeLines(dst, size, pitch) {
		tile(dst, pitch, w.rows[:], run, m, n)
		return
	}
	tile(w.columns, size, w.rows[:], run, m, n)
	writeUncached(dst, pitch, w.columns, size, n)
}

// tile transposes m rows of n runs. The runs have 1, 2, 4 or 8 bytes, and the rows start rowPitch
// bytes apart in src. The columns start pitch bytes apart in dst.
func tile(dst []byte, pitch int, src []byte, run, m, n int) {
	rows, columns := squares(dst, pitch, src, run, m, n)
	for j := range n {
		first := rows // index of the first row that is still missing in this column
		if j >= columns {
			first = 0
		}
		if first < m {
			Line(dst[j*pitch+first*run:], src[first*rowPitch+j*run:], run, rowPitch, m-first)
		}
	}
}
