package compare

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// pick finds the elements whose bits differ. It puts them into picked and places, and returns their
// number. An element has width bytes, which must divide 8. Elements with the same bits are equal,
// and converting them to numbers would take most of the time.
func (m *memory) pick(width int) int64 {
	a, b := m.bytes[0], m.bytes[1]
	for k := range m.picked {
		m.picked[k] = slices.Grow(m.picked[k][:0], len(a)+8)[:len(a)+8]
	}
	m.places = slices.Grow(m.places[:0], len(a)/width)[:len(a)/width]
	p := picker{u: m.picked[0], v: m.picked[1], places: m.places, width: width}
	at := 0 // position of the next word
	for ; len(a) >= 32 && len(b) >= 32; a, b, at = a[32:], b[32:], at+32 {
		w, x := word(a)^word(b), word(a[8:])^word(b[8:])
		y, z := word(a[16:])^word(b[16:]), word(a[24:])^word(b[24:])
		if w|x|y|z != 0 { // few words differ in most files
			p.pick(a, b, w, at)
			p.pick(a[8:], b[8:], x, at+8)
			p.pick(a[16:], b[16:], y, at+16)
			p.pick(a[24:], b[24:], z, at+24)
		}
	}
	for ; len(a) > 0; a, b, at = a[min(8, len(a)):], b[min(8, len(b)):], at+8 {
		x, y := padded(a), padded(b)
		p.pick(x[:], y[:], word(x[:])^word(y[:]), at)
	}
	return int64(p.n)
}

// A picker collects elements.
type picker struct {
	u, v   []byte  // the elements of each tensor so far; picking one writes eight bytes
	places []int32 // their indices in the block
	n      int     // their number
	width  int     // their size in bytes
}

// pick collects the elements that differ in the first word of a and b. at is the position of the
// word in the block, in bytes. differing has the bits that differ.
func (p *picker) pick(a, b []byte, differing uint64, at int) {
	x, y := word(a), word(b)
	for ; differing != 0; p.n++ {
		shift := bits.TrailingZeros64(differing) &^ (8*p.width - 1) // where the first such element starts
		binary.LittleEndian.PutUint64(p.u[p.n*p.width:], x>>shift)
		binary.LittleEndian.PutUint64(p.v[p.n*p.width:], y>>shift)
		p.places[p.n] = int32((at + shift/8) / p.width)
		differing &^= math.MaxUint64 >> (64 - 8*p.width) << shift
	}
}

// word returns the first eight bytes of b as a number.
func word(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// padded returns the first eight bytes of b. It adds zeros if b is shorter.
func padded(b []byte) (w [8]byte) {
	copy(w[:], b)
	return w
}
