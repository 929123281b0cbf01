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
)

// A buffer holds the rows of a tile.
type buffer [tileRows * rowPitch]byte

// transpose fills dst with the runs of a matrix, column by column. The runs of a column are far
// apart in src and adjacent in dst; the runs of a row are adjacent in src and far apart in dst.
func transpose(dst, src []byte, run int, rows, columns loop, buf *buffer) {
	for i := 0; i < rows.n; i += side {
		for j := 0; j < columns.n; j += side {
			r, c := rows, columns
			r.n, c.n = min(side, rows.n-i), min(side, columns.n-j)
			block(dst[i*int(r.to)+j*int(c.to):], src[i*r.from+j*c.from:], run, r, c, buf)
		}
	}
}

// block transposes a part of a matrix, tile by tile.
func block(dst, src []byte, run int, rows, columns loop, buf *buffer) {
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
			from := src[i*rows.from+j*columns.from:]
			left := m
			if columns.from == run && n*run == rowPitch && farRows(buf[:], from, rowPitch, rows.from, m) {
				left = 0 // farRows has copied all rows, and prefetched those of the next tile
			}
			for k := range left {
				row := from[k*rows.from:]
				if columns.from == run {
					copy(buf[k*rowPitch:][:n*run], row)
				} else {
					Line(buf[k*rowPitch:], row, run, columns.from, n)
				}
			}
			tile(dst[i*run+j*int(columns.to):], int(columns.to), buf, run, m, n)
		}
	}
}

// tile transposes m rows of n runs. The runs have 1, 2, 4 or 8 bytes, and the rows start rowPitch
// bytes apart in src. The columns start pitch bytes apart in dst.
func tile(dst []byte, pitch int, src *buffer, run, m, n int) {
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
