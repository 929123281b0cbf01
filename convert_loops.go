package safetensors

import (
	"encoding/binary"
	"math"
)

// The loops of conversion, one element after the other or a few at a time.
// They take any number of elements and run on any host. Where they decide
// anything about a value, it is what decode and encode decide.

// bf16ToF32 puts 16 zero bits below each element. NaNs keep their bits, also
// the signaling ones.
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

// f16ToF32 moves the fields of a normal number; the rest is decode's.
func f16ToF32(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 8 && len(dst) >= 16 {
		v := le.Uint64(src)
		le.PutUint64(dst, uint64(f16Decode(uint32(v&0xffff)))|uint64(f16Decode(uint32(v>>16&0xffff)))<<32)
		le.PutUint64(dst[8:], uint64(f16Decode(uint32(v>>32&0xffff)))|uint64(f16Decode(uint32(v>>48)))<<32)
		src, dst = src[8:], dst[16:]
	}
	for len(src) >= 2 && len(dst) >= 4 {
		le.PutUint32(dst, f16Decode(uint32(le.Uint16(src))))
		src, dst = src[2:], dst[4:]
	}
}

func f16Decode(h uint32) uint32 {
	const inf, normal = 0x1f << 10, 1 << 10
	if m := h & 0x7fff; m-normal < inf-normal {
		return h>>15<<31 | (m<<13 + (127-15)<<23)
	}
	return f16DecodeRare(h)
}

// f16DecodeRare is apart so that f16Decode can be inlined.
func f16DecodeRare(h uint32) uint32 {
	return uint32(layouts[F32].encode(layouts[F16].decode(uint64(h))))
}

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

// f6ToF32 unpacks four elements from three bytes, the first in the low bits.
func f6ToF32(dst, src []byte, table *[256]uint32) {
	le := binary.LittleEndian
	for len(src) >= 3 && len(dst) >= 16 {
		v := uint32(src[0]) | uint32(src[1])<<8 | uint32(src[2])<<16
		le.PutUint64(dst, uint64(table[v&63])|uint64(table[v>>6&63])<<32)
		le.PutUint64(dst[8:], uint64(table[v>>12&63])|uint64(table[v>>18])<<32)
		src, dst = src[3:], dst[16:]
	}
}

// f4ToF32 unpacks two elements from a byte, the first in the low bits.
func f4ToF32(dst, src []byte, table *[256]uint32) {
	le := binary.LittleEndian
	for len(src) >= 1 && len(dst) >= 8 {
		v := src[0]
		le.PutUint64(dst, uint64(table[v&15])|uint64(table[v>>4])<<32)
		src, dst = src[1:], dst[8:]
	}
}

// f32ToF64 leaves to decode the NaNs, which processors treat differently.
func f32ToF64(dst, src []byte) {
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

// f64ToF32 leaves to encode the NaNs, which processors treat differently.
func f64ToF32(dst, src []byte) {
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

// f64ToNarrow converts to a dtype of 8 or 16 bits. It does not pass through
// float32, which would round twice.
func f64ToNarrow(dst, src []byte, l *layout) {
	le := binary.LittleEndian
	if l.exp+l.man < 8 {
		for len(src) >= 8 && len(dst) >= 1 {
			dst[0] = byte(l.encode(le.Uint64(src)))
			src, dst = src[8:], dst[1:]
		}
		return
	}
	for len(src) >= 8 && len(dst) >= 2 {
		le.PutUint16(dst, uint16(l.encode(le.Uint64(src))))
		src, dst = src[8:], dst[2:]
	}
}

// f32ToBF16 keeps the upper half, rounded. The exponent is the same, so
// subnormals, and overflow to infinity, come out of the same addition.
func f32ToBF16(dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 4 && len(dst) >= 2 {
		x := le.Uint32(src)
		if x&0x7fffffff > 0x7f800000 {
			x |= 1 << 22 // quiet, so that a NaN stays one without its lower half
		} else {
			x += 0x7fff + x>>16&1
		}
		le.PutUint16(dst, uint16(x>>16))
		src, dst = src[4:], dst[2:]
	}
}

func f32ToF16(dst, src []byte) {
	le, n := binary.LittleEndian, newNarrower(&layouts[F16])
	for len(src) >= 4 && len(dst) >= 2 {
		le.PutUint16(dst, uint16(n.encode(le.Uint32(src))))
		src, dst = src[4:], dst[2:]
	}
}

func f32ToF8(dst, src []byte, l *layout) {
	le, n := binary.LittleEndian, newNarrower(l)
	for len(src) >= 4 && len(dst) >= 1 {
		dst[0] = byte(n.encode(le.Uint32(src)))
		src, dst = src[4:], dst[1:]
	}
}

// A narrower encodes float32 numbers that are in range without a detour
// through float64.
type narrower struct {
	*layout
	normal uint32  // float32 bits of the smallest normal number
	top    uint32  // number of float32 magnitudes from there to 2^emax
	rebias uint32  // difference of the biases, in place in a code
	one    float32 // its unit in the last place is the smallest subnormal
}

func newNarrower(l *layout) narrower {
	normal := uint32(127+1-l.bias) << 23
	return narrower{
		layout: l,
		normal: normal,
		top:    uint32(127+l.emax())<<23 - normal,
		rebias: uint32(127-l.bias) << l.man,
		one:    math.Float32frombits(uint32(127+l.lsb()+23) << 23),
	}
}

func (n *narrower) encode(x uint32) uint32 {
	sign := x >> 31 << (n.exp + n.man)
	mag := x & 0x7fffffff
	if mag-n.normal < n.top {
		drop := 23 - n.man
		return sign | ((mag+1<<(drop-1)-1+mag>>drop&1)>>drop - n.rebias)
	}
	if mag < n.normal {
		// The sum has the bits of one, plus as many units as the element
		// has, rounded as float32 sums are: to nearest even.
		code := math.Float32bits(math.Float32frombits(mag)+n.one) - math.Float32bits(n.one)
		if code == 0 && n.special == fnuz {
			return 0
		}
		return sign | code
	}
	return uint32(n.layout.encode(layouts[F32].decode(uint64(x))))
}
