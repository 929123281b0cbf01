package stride

const (
	// side is the number of rows and of columns after which the matrix is left for
	// the next block: its pages stay in the translation buffer of the processor,
	// and its lines in the second-level cache.
	side = 512

	// A tile has four cache lines of the result from each of its columns, and of the
	// source from each row: adjacent lines come sooner than others. It is copied to a
	// buffer first: the rows of a matrix often start at multiples of a power of two,
	// where their lines displace one another in the first-level cache.
	tileSide = 4 * 64
	rowPitch = tileSide + 16
	tileRows = 128 // at most
)

// A buffer has the rows of a tile.
type buffer [tileRows * rowPitch]byte

// transpose fills dst with the runs of a matrix, column by column: the rows are
// far apart in src and adjacent in dst, the columns the other way round.
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
	height, width := min(tileSide/run, tileRows), tileSide/run
	for j := 0; j < columns.n; j += width {
		n := min(width, columns.n-j)
		for i := 0; i < rows.n; i += height {
			m := min(height, rows.n-i)
			from := src[i*rows.from+j*columns.from:]
			for k := range m {
				row := from[k*rows.from:]
				if columns.from == run {
					copy(buf[k*rowPitch:][:n*run], row)
				} else {
					Line(buf[k*rowPitch:], row, run, columns.from, n)
				}
			}
			tile(dst[i*run+j*int(columns.to):], int(columns.to), buf[:], run, m, n)
		}
	}
}

// tile transposes m rows of n runs of 1, 2, 4 or 8 bytes, rowPitch bytes apart.
// The columns are pitch bytes apart in dst.
func tile(dst []byte, pitch int, src []byte, run, m, n int) {
	per := 8 / run // runs in a word, and columns at a time
	rows, columns := m/per*per, n/per*per
	if run == 8 {
		columns = 0 // a word is copied as it is
	}
	for j := 0; j < columns; j += per {
		d, s := dst[j*pitch:], src[j*run:]
		switch run { // a func in a variable would put the buffer on the heap
		case 1:
			strip1(d, pitch, s, rows*run)
		case 2:
			strip2(d, pitch, s, rows*run)
		case 4:
			strip4(d, pitch, s, rows*run)
		}
		for k := 0; k < per && rows < m; k++ { // the last rows
			Line(d[k*pitch+rows*run:], s[rows*rowPitch+k*run:], run, rowPitch, m-rows)
		}
	}
	for j := columns; j < n; j++ { // the last columns
		Line(dst[j*pitch:], src[j*run:], run, rowPitch, m)
	}
}
