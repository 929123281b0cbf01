//go:build !purego && (amd64 || arm64)

package safetensors

import "math"

// An assembly kernel converts a block at a time, 64 bytes of output, and the
// elements left at the end with a last block that overlaps the one before. So
// it takes any number of elements from a block on; fewer are for the loops.
const (
	blockF32 = 64 / 4
	block16  = 64 / 2
)

// vectorToF32 reports whether it has converted src.
func vectorToF32(dst, src []byte, from DType, stream bool) bool {
	n := len(dst) / 4
	if n < blockF32 || !hasVector {
		return false
	}
	switch from {
	case BF16:
		bf16ToF32Vector(&dst[0], &src[0], n, stream)
	case F16:
		f16ToF32Vector(&dst[0], &src[0], n, stream)
	case F8_E5M2, F8_E4M3, F8_E4M3FNUZ:
		v := newF8Vector(from)
		f8ToF32Vector(&dst[0], &src[0], n, stream, &v)
	default:
		return false
	}
	return true
}

// vectorFromF32 reports whether it has converted src.
func vectorFromF32(dst []byte, to DType, src []byte, stream bool) bool {
	n := len(src) / 4
	if n < block16 || !hasVector {
		return false
	}
	switch to {
	case BF16:
		f32ToBF16Vector(&dst[0], &src[0], n, stream)
	case F16:
		f32ToF16Vector(&dst[0], &src[0], n, stream)
	default:
		return false
	}
	return true
}

// An f8Vector is what f8ToF32Vector has to know about an 8-bit float. It goes
// by way of binary16: extended with its sign to 16 bits, shifted so that its
// fields meet those of a binary16, and masked, the element is a binary16 that
// needs only be scaled by the difference of the biases. This holds for
// subnormals, too, but not for F8_E5M2FNUZ: all ones in its exponent are
// numbers.
type f8Vector struct {
	shift  uint64
	mask   uint16
	ignore uint16 // the bits that do not distinguish a NaN: its sign
	nan    uint16 // the NaN without these; not within mask if binary16 has it in the same place
	flip   uint16 // the bits in which it differs from the NaN of binary16
	scale  float32
}

func newF8Vector(d DType) f8Vector {
	const sign, quietNaN = 1 << 15, 0x3f << 9
	l, half := &layouts[d], &layouts[F16]
	shift := half.man - l.man
	v := f8Vector{
		shift: uint64(shift),
		mask:  sign | 0x7f<<shift,
		scale: float32(math.Ldexp(1, int(half.bias-l.bias))),
	}
	nan := uint16(l.max()+1) << shift
	switch l.special {
	case fn:
		v.ignore, v.nan, v.flip = sign, nan, nan^quietNaN
	case fnuz:
		v.nan, v.flip = sign, quietNaN
	default:
		v.nan = 1
	}
	return v
}
