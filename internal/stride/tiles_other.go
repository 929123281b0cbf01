//go:build purego || !amd64

package stride

import "encoding/binary"

// squares does the same as tile, but only for the first rows and columns. It returns their numbers,
// which are multiples of the number of runs in 8 bytes: it transposes squares whose rows have 8
// bytes.
func squares(dst []byte, pitch int, src []byte, run, m, n int) (rows, columns int) {
	per := 8 / run // number of runs in a word, and of columns transposed at a time
	if run == 8 || m < per || n < per {
		return 0, 0
	}
	rows, columns = m/per*per, n/per*per
	for j := 0; j < columns; j += per {
		d, s := dst[j*pitch:], src[j*run:]
		switch run { // calling these funcs through a variable would put the buffer on the heap
		case 1:
			strip1(d, pitch, s, rows*run)
		case 2:
			strip2(d, pitch, s, rows*run)
		case 4:
			strip4(d, pitch, s, rows*run)
		}
	}
	return rows, columns
}

// wholeLines returns false: this platform has no assembly that writes past the caches. So nobody
// calls writeUncached.
func wholeLines(dst []byte, run, pitch int) bool { return false }

func writeUncached(dst []byte, pitch int, src []byte, run, n int) {}

// A strip consists of a few columns of a tile. Each of the strip funcs below transposes one strip,
// by transposing squares in registers whose rows have 8 bytes. In dst a column has size bytes, a
// multiple of 8, and columns start pitch bytes apart.

var le = binary.LittleEndian

const (
	low32 = 0x00000000ffffffff
	low16 = 0x0000ffff0000ffff
	low8  = 0x00ff00ff00ff00ff
)

// swap exchanges the high parts of a with the low parts of b. mask selects the low parts; the high
// parts lie shift bits above them.
func swap(a, b uint64, shift int, mask uint64) (uint64, uint64) {
	return a&mask | b&mask<<shift, a>>shift&mask | b&^mask
}

// strip4 transposes a strip of two columns, with runs of 4 bytes.
func strip4(dst []byte, pitch int, src []byte, size int) {
	d0, d1 := dst[:size], dst[pitch:][:size]
	for i, row := 0, 0; i+8 <= len(d0) && i+8 <= len(d1); i, row = i+8, row+2*rowPitch {
		r := src[row:][:rowPitch+8]
		a, b := swap(le.Uint64(r), le.Uint64(r[rowPitch:]), 32, low32)
		le.PutUint64(d0[i:], a)
		le.PutUint64(d1[i:], b)
	}
}

// strip2 transposes a strip of four columns, with runs of 2 bytes.
func strip2(dst []byte, pitch int, src []byte, size int) {
	d0, d1 := dst[:size], dst[pitch:][:size]
	d2, d3 := dst[2*pitch:][:size], dst[3*pitch:][:size]
	for i, row := 0, 0; i+8 <= len(d0) && i+8 <= len(d1) && i+8 <= len(d2) && i+8 <= len(d3); i, row = i+8, row+4*rowPitch {
		r := src[row:][:3*rowPitch+8]
		a, c := swap(le.Uint64(r), le.Uint64(r[2*rowPitch:]), 32, low32)
		b, d := swap(le.Uint64(r[rowPitch:]), le.Uint64(r[3*rowPitch:]), 32, low32)
		a, b = swap(a, b, 16, low16)
		c, d = swap(c, d, 16, low16)
		le.PutUint64(d0[i:], a)
		le.PutUint64(d1[i:], b)
		le.PutUint64(d2[i:], c)
		le.PutUint64(d3[i:], d)
	}
}

// strip1 transposes a strip of eight columns, with runs of 1 byte.
func strip1(dst []byte, pitch int, src []byte, size int) {
	for i := 0; i+8 <= size; i += 8 {
		r := src[i*rowPitch:][:7*rowPitch+8]
		a, e := swap(le.Uint64(r), le.Uint64(r[4*rowPitch:]), 32, low32)
		b, f := swap(le.Uint64(r[rowPitch:]), le.Uint64(r[5*rowPitch:]), 32, low32)
		c, g := swap(le.Uint64(r[2*rowPitch:]), le.Uint64(r[6*rowPitch:]), 32, low32)
		d, h := swap(le.Uint64(r[3*rowPitch:]), le.Uint64(r[7*rowPitch:]), 32, low32)
		a, c = swap(a, c, 16, low16)
		b, d = swap(b, d, 16, low16)
		e, g = swap(e, g, 16, low16)
		f, h = swap(f, h, 16, low16)
		a, b = swap(a, b, 8, low8)
		c, d = swap(c, d, 8, low8)
		e, f = swap(e, f, 8, low8)
		g, h = swap(g, h, 8, low8)
		for k, w := range [8]uint64{a, b, c, d, e, f, g, h} {
			le.PutUint64(dst[i+k*pitch:], w)
		}
	}
}
