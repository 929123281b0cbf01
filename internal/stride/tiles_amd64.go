//go:build !purego

package stride

// The funcs tile1, tile2 and tile4 do the same as tile for runs of 1, 2 and 4 bytes. They check no
// bounds. rows and columns must not be 0. rows must be a multiple of 16 in tile1, of 8 in tile2 and
// of 4 in tile4; columns must be a multiple of 8 in tile1 and tile2, and of 4 in tile4.

var _ [256]byte = [rowPitch]byte{} // compiles only if rowPitch is 256, as it is in the assembly

//go:noescape
func tile1(dst, src *byte, pitch, rows, columns int)

//go:noescape
func tile2(dst, src *byte, pitch, rows, columns int)

//go:noescape
func tile4(dst, src *byte, pitch, rows, columns int)

// squares does the same as tile, but only for the first rows and columns. It returns their numbers,
// which are multiples of those that the assembly transposes at a time.
func squares(dst []byte, pitch int, src *buffer, run, m, n int) (rows, columns int) {
	switch run {
	case 1:
		rows, columns = m&^15, n&^7
	case 2:
		rows, columns = m&^7, n&^7
	case 4:
		rows, columns = m&^3, n&^3
	}
	if rows == 0 || columns == 0 {
		return 0, 0
	}
	// The check panics here if dst is too short, because the assembly would write beyond it. A tile
	// is never larger than src.
	_ = dst[(columns-1)*pitch+rows*run-1]
	switch run {
	case 1:
		tile1(&dst[0], &src[0], pitch, rows, columns)
	case 2:
		tile2(&dst[0], &src[0], pitch, rows, columns)
	case 4:
		tile4(&dst[0], &src[0], pitch, rows, columns)
	}
	return rows, columns
}
