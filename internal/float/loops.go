package float

import (
	"encoding/binary"
	"math"
)

// The loops in this file convert one element after the other, or a few in one step. They take any
// number of elements and run on any host. Each gives the results of decode and encode, with the
// exception that the comment of bf16ToF32 states.

// bf16ToF32 appends 16 zero bits to each element. A NaN keeps its bits, so a
// signaling NaN stays signaling.
func bf16ToF32(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 16 && len(dst) >= 32 {
		v, w := le.Uint64(src), le.Uint64(src[8:])
		le.PutUint64(dst, v<<16&0xffff0000|v<<32&(0xffff<<48))
		le.PutUint64(dst[8:], v>>16&0xffff0000|v&(0xffff<<48))
		le.PutUint64(dst[16:], w<<16&0xffff0000|w<<32&(0xffff<<48))
		le.PutUint64(dst[24:], w>>16&0xffff0000|w&(0xffff<<48))
		src, dst = src[16:], dst[32:]
	}
	for len(src) >= 2 && len(dst) >= 4 {
		le.PutUint32(dst, uint32(le.Uint16(src))<<16)
		src, dst = src[2:], dst[4:]
	}
}

// f16ToF32 converts finite numbers with one multiplication: the fields of a binary16, shifted to
// their place in a float32, are a number that is too small by a factor of 2^112, the difference of
// the biases. That also holds for subnormals. It leaves infinities and NaNs to f16Special.
func f16ToF32(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 8 && len(dst) >= 16 {
		v := le.Uint64(src)
		const exps, lsbs = 0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400
		if (v&exps+lsbs)&(lsbs<<5) == 0 { // no exponent is all ones
			le.PutUint32(dst, f16Number(uint32(v)))
			le.PutUint32(dst[4:], f16Number(uint32(v>>16)))
			le.PutUint32(dst[8:], f16Number(uint32(v>>32)))
			le.PutUint32(dst[12:], f16Number(uint32(v>>48)))
		} else {
			f16Special(dst[:16], src)
		}
		src, dst = src[8:], dst[16:]
	}
	f16Special(dst, src)
}

// f16Number returns the float32 bits of the finite binary16 in the low half of h.
func f16Number(h uint32) uint32 {
	return math.Float32bits(math.Float32frombits(h&0x7fff<<13)*0x1p112) | h&0x8000<<16
}

// f16Special is like f16ToF32, but without the fast path for finite numbers.
func f16Special(dst, src []byte) {
	le := binary.LittleEndian
	for ; len(src) >= 2 && len(dst) >= 4; src, dst = src[2:], dst[4:] {
		f := layouts[F16].decode(uint64(le.Uint16(src)))
		le.PutUint32(dst, uint32(layouts[F32].encode(f)))
	}
}

// f8ToF32 converts elements of 8 bits.
func f8ToF32(dst, src []byte, table *[256]uint32) {
	le := binary.LittleEndian
	for len(src) >= 8 && len(dst) >= 32 {
		v := le.Uint64(src)
		le.PutUint64(dst, uint64(table[byte(v)])|uint64(table[byte(v>>8)])<<32)
		le.PutUint64(dst[8:], uint64(table[byte(v>>16)])|uint64(table[byte(v>>24)])<<32)
		le.PutUint64(dst[16:], uint64(table[byte(v>>32)])|uint64(table[byte(v>>40)])<<32)
		le.PutUint64(dst[24:], uint64(table[byte(v>>48)])|uint64(table[byte(v>>56)])<<32)
		src, dst = src[8:], dst[32:]
	}
	for len(src) >= 1 && len(dst) >= 4 {
		le.PutUint32(dst, table[src[0]])
		src, dst = src[1:], dst[4:]
	}
}

// f6ToF32 unpacks four elements from three bytes, with the first in the low bits.
func f6ToF32(dst, src []byte, table *[256]uint32) {
	le := binary.LittleEndian
	for len(src) >= 3 && len(dst) >= 16 {
		v := uint32(src[0]) | uint32(src[1])<<8 | uint32(src[2])<<16
		le.PutUint64(dst, uint64(table[v&63])|uint64(table[v>>6&63])<<32)
		le.PutUint64(dst[8:], uint64(table[v>>12&63])|uint64(table[v>>18])<<32)
		src, dst = src[3:], dst[16:]
	}
}

// f4ToF32 converts the two elements in each byte of src. The first one is in the low bits.
func f4ToF32(dst, src []byte, table *[256]uint32) {
	le := binary.LittleEndian
	for len(src) >= 4 && len(dst) >= 32 {
		v := le.Uint32(src)
		le.PutUint64(dst, uint64(table[v&15])|uint64(table[v>>4&15])<<32)
		le.PutUint64(dst[8:], uint64(table[v>>8&15])|uint64(table[v>>12&15])<<32)
		le.PutUint64(dst[16:], uint64(table[v>>16&15])|uint64(table[v>>20&15])<<32)
		le.PutUint64(dst[24:], uint64(table[v>>24&15])|uint64(table[v>>28])<<32)
		src, dst = src[4:], dst[32:]
	}
	for len(src) >= 1 && len(dst) >= 8 {
		v := src[0]
		le.PutUint64(dst, uint64(table[v&15])|uint64(table[v>>4])<<32)
		src, dst = src[1:], dst[8:]
	}
}

// f32ToF64 leaves NaNs to decode, because processors differ in how they convert them. It converts
// four elements at a time: on amd64 a conversion waits for the one before it in the same register.
func f32ToF64(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 16 && len(dst) >= 32 {
		x, y := le.Uint64(src), le.Uint64(src[8:])
		a, b := float64(math.Float32frombits(uint32(x))), float64(math.Float32frombits(uint32(x>>32)))
		c, d := float64(math.Float32frombits(uint32(y))), float64(math.Float32frombits(uint32(y>>32)))
		if sum := (a + b) + (c + d); sum != sum { // some are NaN, or infinities of both signs
			f32ToF64One(dst[:32], src[:16])
		} else {
			le.PutUint64(dst, math.Float64bits(a))
			le.PutUint64(dst[8:], math.Float64bits(b))
			le.PutUint64(dst[16:], math.Float64bits(c))
			le.PutUint64(dst[24:], math.Float64bits(d))
		}
		src, dst = src[16:], dst[32:]
	}
	f32ToF64One(dst, src)
}

// f32ToF64One does the same as f32ToF64, one element at a time.
func f32ToF64One(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 4 && len(dst) >= 8 {
		x := le.Uint32(src)
		f := math.Float64bits(float64(math.Float32frombits(x)))
		if x&0x7fffffff > 0x7f800000 {
			f = layouts[F32].decode(uint64(x))
		}
		le.PutUint64(dst, f)
		src, dst = src[4:], dst[8:]
	}
}

// f64ToF32 leaves NaNs to encode, because processors differ in how they convert them. It converts
// four elements at a time, as f32ToF64 does.
func f64ToF32(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 32 && len(dst) >= 16 {
		a, b := math.Float64frombits(le.Uint64(src)), math.Float64frombits(le.Uint64(src[8:]))
		c, d := math.Float64frombits(le.Uint64(src[16:])), math.Float64frombits(le.Uint64(src[24:]))
		if sum := (a + b) + (c + d); sum != sum { // some are NaN, or infinities of both signs
			f64ToF32One(dst[:16], src[:32])
		} else {
			le.PutUint32(dst, math.Float32bits(float32(a)))
			le.PutUint32(dst[4:], math.Float32bits(float32(b)))
			le.PutUint32(dst[8:], math.Float32bits(float32(c)))
			le.PutUint32(dst[12:], math.Float32bits(float32(d)))
		}
		src, dst = src[32:], dst[16:]
	}
	f64ToF32One(dst, src)
}

// f64ToF32One does the same as f64ToF32, one element at a time.
func f64ToF32One(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 8 && len(dst) >= 4 {
		x := le.Uint64(src)
		f := math.Float32bits(float32(math.Float64frombits(x)))
		if x&^f64Sign > f64Inf {
			f = uint32(layouts[F32].encode(x))
		}
		le.PutUint32(dst, f)
		src, dst = src[8:], dst[4:]
	}
}

// f64ToNarrow converts to a format of 8 or 16 bits directly, because by way of float32 it would
// round twice.
func f64ToNarrow(dst, src []byte, l *layout) {
	le, size := binary.LittleEndian, l.bits()/8
	for len(src) >= 8 && len(dst) >= size {
		code := l.encode(le.Uint64(src))
		if size == 1 {
			dst[0] = byte(code)
		} else {
			le.PutUint16(dst, uint16(code))
		}
		src, dst = src[8:], dst[size:]
	}
}

// f32ToBF16 rounds each element to its upper half.
func f32ToBF16(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 16 && len(dst) >= 8 {
		le.PutUint16(dst, bf16Round(le.Uint32(src)))
		le.PutUint16(dst[2:], bf16Round(le.Uint32(src[4:])))
		le.PutUint16(dst[4:], bf16Round(le.Uint32(src[8:])))
		le.PutUint16(dst[6:], bf16Round(le.Uint32(src[12:])))
		src, dst = src[16:], dst[8:]
	}
	for len(src) >= 4 && len(dst) >= 2 {
		le.PutUint16(dst, bf16Round(le.Uint32(src)))
		src, dst = src[4:], dst[2:]
	}
}

// bf16Round returns the code of the float32 with the bits x. Both formats have the
// same exponent, so one addition also rounds subnormals and overflows to
// infinity.
func bf16Round(x uint32) uint16 {
	if x&0x7fffffff > 0x7f800000 {
		return uint16(x>>16 | 1<<6) // sets the bit of a quiet NaN, because the upper half of a NaN alone may be an infinity
	}
	return uint16((x + 0x7fff + x>>16&1) >> 16)
}

// f32ToNarrow converts to F16 or to a format of 8 bits. It does in float32 what encode does in
// float64. It clamps magnitudes to 2^97, so that sum is never infinite. That changes no result,
// because the finite numbers of all these formats are smaller.
func f32ToNarrow(dst, src []byte, l *layout) {
	le, size := binary.LittleEndian, l.bits()/8
	toUnit, overflow := 23-uint32(l.man), uint32(l.overflow)
	least := uint32(127 + 1 - l.bias)
	for len(src) >= 4 && len(dst) >= size {
		x := le.Uint32(src)
		var code uint32
		if mag := x & 0x7fffffff; mag > 0x7f800000 {
			code = uint32(l.encode(layouts[F32].decode(uint64(x))))
		} else {
			mag = min(mag, (97+127)<<23)
			e := max(mag>>23, least)
			unit := (e + toUnit) << 23
			sum := math.Float32frombits(mag) + math.Float32frombits(unit)
			code = min((e-least)<<(l.man&31)+math.Float32bits(sum)-unit, overflow)
			if code > 0 || l.special != fnuz {
				code |= x >> 31 << ((l.exp + l.man) & 31)
			}
		}
		if size == 1 {
			dst[0] = byte(code)
		} else {
			le.PutUint16(dst, uint16(code))
		}
		src, dst = src[4:], dst[size:]
	}
}
