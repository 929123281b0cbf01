package float

import (
	"encoding/binary"
	"math"
)

// int16ToF32 and int32ToF64 convert integers to floats that represent all of them. The type T
// determines whether the integers have a sign.

func int16ToF32[T int16 | uint16](dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 8 && len(dst) >= 16 {
		v := le.Uint64(src)
		le.PutUint64(dst, twoF32(float32(T(v)), float32(T(v>>16))))
		le.PutUint64(dst[8:], twoF32(float32(T(v>>32)), float32(T(v>>48))))
		src, dst = src[8:], dst[16:]
	}
	for len(src) >= 2 && len(dst) >= 4 {
		le.PutUint32(dst, math.Float32bits(float32(T(le.Uint16(src)))))
		src, dst = src[2:], dst[4:]
	}
}

func int32ToF64[T int32 | uint32](dst, src []byte) {
	le := binary.LittleEndian
	for len(src) >= 8 && len(dst) >= 16 {
		v := le.Uint64(src)
		le.PutUint64(dst, math.Float64bits(float64(T(v))))
		le.PutUint64(dst[8:], math.Float64bits(float64(T(v>>32))))
		src, dst = src[8:], dst[16:]
	}
	for len(src) >= 4 && len(dst) >= 8 {
		le.PutUint64(dst, math.Float64bits(float64(T(le.Uint32(src)))))
		src, dst = src[4:], dst[8:]
	}
}

// twoF32 returns the bits of a and b as float32 numbers, with a in the low half.
func twoF32(a, b float32) uint64 {
	return uint64(math.Float32bits(a)) | uint64(math.Float32bits(b))<<32
}
