//go:build !purego && (amd64 || arm64)

package safetensors

import "math"

// An assembly kernel converts a block at a time, 64 bytes of output unless it
// says otherwise, and the elements left at the end with a last block that
// overlaps the one before. So it takes any number of elements from a block on;
// fewer are for the loops.
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
	case F8_E5M2:
		f8E5M2ToF32Vector(&dst[0], &src[0], n, stream)
	case F8_E4M3, F8_E4M3FNUZ:
		v := newF8Vector(from)
		f8E4M3ToF32Vector(&dst[0], &src[0], n, stream, &v)
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

// An f8Vector is what f8E4M3ToF32Vector has to know about a dtype of 4 bits of
// exponent and 3 of mantissa. It goes by way of binary16: with its magnitude
// shifted so that the mantissas begin at the same bit, the element is a
// binary16 that needs only be scaled by the difference of the biases. This
// holds for subnormals, too.
//
// F8_E5M2 is the upper half of a binary16. F8_E5M2FNUZ is left to the loops:
// where its exponent is all ones, binary16 has no numbers.
type f8Vector struct {
	ignore uint16 // the bits of the binary16 that do not tell a NaN: its sign or none
	nan    uint16 // the other bits of a NaN
	flip   uint16 // the bits in which it differs from the NaN of binary16
	scale  float32
}

func newF8Vector(d DType) f8Vector {
	const sign, quietNaN = 1 << 15, 0x3f << 9
	l, half := &floatLayouts[d], &floatLayouts[F16]
	v := f8Vector{scale: math.Float32frombits(uint32(127+half.bias-l.bias) << 23)}
	if l.special == fnuz {
		v.nan = sign
	} else {
		v.ignore = sign
		v.nan = uint16(l.max()+1) << (half.man - l.man)
	}
	v.flip = (v.nan ^ quietNaN) &^ sign
	return v
}
