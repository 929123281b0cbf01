//go:build !purego && (amd64 || arm64)

package float

// An assembly kernel converts one block after another: 64 bytes of output, unless its comment gives
// another size. For the remaining elements it converts a last block that overlaps the one before.
// So a kernel takes any number of elements from one block on. The loops convert shorter inputs.
const (
	blockF32 = 64 / 4 // elements in a block of F32
	block16  = 64 / 2 // elements in a block of a 16-bit format
)

// vectorToF32 converts src and returns true, or leaves dst unchanged and returns false.
func vectorToF32(dst, src []byte, from Format, nonTemporal bool) bool {
	n := len(dst) / 4
	if n < blockF32 || !hasVector {
		return false
	}
	switch from {
	case BF16:
		bf16ToF32Vector(&dst[0], &src[0], n, nonTemporal)
	case F16:
		f16ToF32Vector(&dst[0], &src[0], n, nonTemporal)
	case E5M2:
		e5m2ToF32Vector(&dst[0], &src[0], n, nonTemporal)
	case E4M3, E4M3FNUZ:
		e4m3ToF32Vector(&dst[0], &src[0], n, nonTemporal, &e4m3Vectors[from])
	default:
		return integersToF32(dst, src, from, nonTemporal)
	}
	return true
}

// vectorFromF32 converts src and returns true, or leaves dst unchanged and returns false. It
// converts only to formats that overflow to infinity, as the instructions of processors and their
// integer arithmetic do. No kernel saturates.
func vectorFromF32(dst []byte, to Format, src []byte, nonTemporal bool) bool {
	n := len(src) / 4
	if n < block16 || !hasVector {
		return false
	}
	switch to {
	case BF16:
		f32ToBF16Vector(&dst[0], &src[0], n, nonTemporal)
	case F16:
		f32ToF16Vector(&dst[0], &src[0], n, nonTemporal)
	default:
		return false
	}
	return true
}

// An e4m3Vector holds the constants with which e4m3ToF32Vector converts E4M3 or E4M3FNUZ. The
// kernel shifts the magnitude of an element so that its mantissa starts at the top mantissa bit of
// a binary16. The value of the element, even of a subnormal, is that of this binary16 times scale,
// which is 2 to the difference of the exponent biases.
//
// E5M2 needs no such constants, because it is the upper half of a binary16. E5M2FNUZ is left to the
// loops: it has numbers where the exponent of a binary16 is all ones.
type e4m3Vector struct {
	ignore uint16 // the bits that a NaN may have set or not: the sign bit, or none
	nan    uint16 // the other bits of a NaN after the shift
	flip   uint16 // the bits in which nan differs from halfNaN
	scale  float32
}

const halfNaN = 0x3f << 9 // the NaN of binary16, quiet and without its sign

var e4m3Vectors = [...]e4m3Vector{
	E4M3:     {ignore: 1 << 15, nan: 0x7f << 7, flip: 0x7f<<7 ^ halfNaN, scale: 1 << (15 - 7)},
	E4M3FNUZ: {nan: 1 << 15, flip: halfNaN, scale: 1 << (15 - 8)},
}
