// Package dequant unpacks packed codes into float32 numbers, and scales these numbers in groups.
// Every operation on numbers is rounded to float32 by itself, never fused with another.
package dequant

import "encoding/binary"

// A Table maps each code to its number. Codes of n bits use only the first 2^n numbers.
type Table [256]float32

// A Packing describes where the code of an element lies in the bytes of its line.
type Packing struct {
	Bits int // width of a code, 1 to 8

	// Order, unless nil, is the order of the codes in each aligned group of eight: the code at
	// index k belongs to element Order[k]. If Order is nil, codes are in the order of their
	// elements.
	Order *[8]int
}

// Unpack sets dst to the numbers of adjacent codes. The first code starts at the lowest bit of
// src[0]. src must hold all codes of dst. With an Order it must also hold the whole last group of
// eight, unless the line ends within that group.
func (p Packing) Unpack(dst []float32, src []byte, numbers *Table) {
	n := unpackVector(dst, src, p, numbers)
	dst, src = dst[n:], src[n/8*p.Bits:]
	switch {
	case p.Order == nil && p.Bits == 8:
		src = src[:len(dst)]
		for i, code := range src {
			dst[i] = numbers[code]
		}
	case p.Order == nil && p.Bits == 4:
		unpack4(dst, src, (*[16]float32)(numbers[:]))
	default:
		p.unpackGroups(dst, src, numbers)
	}
}

// unpack4 unpacks codes of 4 bits in the order of their elements.
func unpack4(dst []float32, src []byte, numbers *[16]float32) {
	for len(dst) >= 8 && len(src) >= 4 {
		w := binary.LittleEndian.Uint32(src)
		d := (*[8]float32)(dst)
		d[0], d[1] = numbers[w&15], numbers[w>>4&15]
		d[2], d[3] = numbers[w>>8&15], numbers[w>>12&15]
		d[4], d[5] = numbers[w>>16&15], numbers[w>>20&15]
		d[6], d[7] = numbers[w>>24&15], numbers[w>>28]
		dst, src = dst[8:], src[4:]
	}
	for i := range dst {
		dst[i] = numbers[src[i/2]>>(i%2*4)&15]
	}
}

// unpackGroups unpacks groups of eight codes, in any order and of any width. A group fills p.Bits
// bytes.
func (p Packing) unpackGroups(dst []float32, src []byte, numbers *Table) {
	mask := uint64(1)<<p.Bits - 1
	order := p.Order
	if order == nil {
		order = &[8]int{0, 1, 2, 3, 4, 5, 6, 7}
	}
	for len(dst) > 0 {
		codes := p.group(src)
		var group [8]float32
		for _, i := range order {
			group[i&7] = numbers[codes&mask]
			codes >>= p.Bits
		}
		n := copy(dst, group[:])
		dst, src = dst[n:], src[min(p.Bits, len(src)):]
	}
}

// group returns the first eight codes of src as one number. If src is shorter than 8 bytes, the
// missing bits are 0.
func (p Packing) group(src []byte) uint64 {
	if len(src) >= 8 {
		return binary.LittleEndian.Uint64(src)
	}
	var b [8]byte
	copy(b[:], src)
	return binary.LittleEndian.Uint64(b[:])
}

// UnpackDown sets dst to the numbers of one line of codes. The matrix consists of
// little-endian words of 32 bits, and codes are packed down its columns: shift is the
// first bit of the code in the words of row low. A code that does not fit there
// continues in the words of row high; for other lines high is nil.
func UnpackDown(dst []float32, low, high []byte, shift, bits int, numbers *Table) {
	mask := uint32(1)<<bits - 1
	low = low[:4*len(dst)]
	if high == nil {
		for i := downVector(dst, low, shift, bits, numbers); i < len(dst); i++ {
			dst[i] = numbers[uint8(binary.LittleEndian.Uint32(low[4*i:])>>shift&mask)]
		}
		return
	}
	high = high[:4*len(dst)]
	for i := range dst {
		code := binary.LittleEndian.Uint32(low[4*i:])>>shift | binary.LittleEndian.Uint32(high[4*i:])<<(32-shift)
		dst[i] = numbers[uint8(code&mask)]
	}
}
