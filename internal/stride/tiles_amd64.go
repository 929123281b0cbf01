//go:build !purego

package stride

import "github.com/gosafetensors/safetensors/internal/mem"

// The funcs tile1, tile2, tile4 and tile8 do the same as tile for runs of 1, 2, 4 and 8 bytes. They
// check no bounds. rows and columns must not be 0. rows must be a multiple of 16 in tile1, of 8 in
// tile2, of 4 in tile4 and of 2 in tile8; columns must be a multiple of 8 in tile1 and tile2, of 4
// in tile4 and of 2 in tile8.

var _ [256]byte = [rowPitch]byte{} // compiles only if rowPitch is 256, as it is in the assembly

//go:noescape
func tile1(dst, src *byte, pitch, rows, columns int)

//go:noescape
func tile2(dst, src *byte, pitch, rows, columns int)

//go:noescape
func tile4(dst, src *byte, pitch, rows, columns int)

//go:noescape
func tile8(dst, src *byte, pitch, rows, columns int)

// storeRows copies n rows of run bytes each, which are adjacent in src, to rows that start pitch
// bytes apart in dst. It writes whole cache lines past the caches. run must be a multiple of 64 and
// not 0, dst and pitch must be multiples of 64. It checks no bounds.
//
//go:noescape
func storeRows(dst, src *byte, run, pitch, n int)

// squares does the same as tile, but only for the first rows and columns. It returns their numbers,
// which are multiples of those that the assembly transposes at a time.
func squares(dst []byte, pitch int, src []byte, run, m, n int) (rows, columns int) {
	switch run {
	case 1:
		rows, columns = m&^15, n&^7
	case 2:
		rows, columns = m&^7, n&^7
	case 4:
		rows, columns = m&^3, n&^3
	case 8:
		rows, columns = m&^1, n&^1
	}
	if rows == 0 || columns == 0 {
		return 0, 0
	}
	// The check panics here if a slice is too short, because the assembly would access memory beyond
	// it.
	_, _ = dst[(columns-1)*pitch+rows*run-1], src[(rows-1)*rowPitch+columns*run-1]
	switch run {
	case 1:
		tile1(&dst[0], &src[0], pitch, rows, columns)
	case 2:
		tile2(&dst[0], &src[0], pitch, rows, columns)
	case 4:
		tile4(&dst[0], &src[0], pitch, rows, columns)
	case 8:
		tile8(&dst[0], &src[0], pitch, rows, columns)
	}
	return rows, columns
}

// wholeLines reports whether rows of run bytes consist of whole cache lines, if the first one is at
// the start of dst and the next ones pitch bytes after it each.
func wholeLines(dst []byte, run, pitch int) bool {
	return run%64 == 0 && pitch%64 == 0 && mem.Address(dst)%64 == 0
}

// writeUncached copies n rows of run bytes each, which are adjacent in src, to rows that start pitch
// bytes apart in dst, past the caches of the processor. The rows must consist of whole lines.
func writeUncached(dst []byte, pitch int, src []byte, run, n int) {
	// The check panics here if a slice is too short, because the assembly would access memory beyond
	// it.
	_, _ = dst[(n-1)*pitch+run-1], src[n*run-1]
	storeRows(&dst[0], &src[0], run, pitch, n)
}
