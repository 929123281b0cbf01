package float

// NonTemporalFrom is the size of an output, in bytes, from which non-temporal stores pay off. They
// bypass the caches. A smaller output is better left in the caches: otherwise its reader would have
// to fetch it from memory, and lose the time that the writer gained. BenchmarkConvert measured the
// conversion of BF16 to F32 on two busy cores of an AVX-512 Xeon with 2 MiB of L2 cache each. The
// speeds in GB/s, read and written, first through the caches and then past them, were 25 and 30 for
// outputs of 4 to 32 MiB, 12 and 29 for 64 MiB, and 11 and 21 for 256 MiB. The conversion of F32 to
// F16 behaves the same way.
const NonTemporalFrom = 32 << 20

// Convertible reports whether Convert can convert elements from one format to another: from any
// float to any float that has a sign and a NaN, and from any format except None to itself.
func Convertible(from, to Format) bool {
	if from == None || to == None {
		return false
	}
	return from == to || layouts[to].overflow > 0 && layouts[from].special != integer
}

// Exact reports whether the format to is F32 or F64, and represents every value of the format from,
// including zeros, infinities and NaN.
func Exact(from, to Format) bool {
	if from == None {
		return false
	}
	return to == F64 || to == F32 && (from == F32 || from.Bits() <= 16)
}

// Convert converts the elements in src, which have the format from, and stores them in dst in the
// format to. The formats must be Convertible or Exact, and dst must have room for exactly the
// elements of src. Both are little endian on every host and may have any alignment. They must not
// overlap.
//
// The elements must fill whole bytes: F4 comes in multiples of 2 elements, E2M3
// and E3M2 in multiples of 4.
//
// nonTemporal asks for stores that bypass the caches. Set it if dst is part of
// an output of at least NonTemporalFrom bytes.
//
// Widening is exact. Narrowing rounds once, to nearest, ties to even. A number
// that is too large becomes infinity in E5M2, F16, BF16 and F32, ±448 in E4M3,
// and NaN in the FNUZ formats; so does infinity. A NaN stays NaN. It keeps its
// sign, except in the FNUZ formats, which have a single NaN.
func Convert(dst []byte, to Format, src []byte, from Format, nonTemporal bool) {
	switch {
	case from == to:
		copy(dst, src)
	case to == F32:
		toF32(dst, src, from, nonTemporal)
	case from == F32:
		fromF32(dst, to, src, nonTemporal)
	case from == F64:
		f64ToNarrow(dst, src, &layouts[to])
	case from == I32:
		int32ToF64[int32](dst, src)
	case from == U32:
		int32ToF64[uint32](dst, src)
	default:
		// Every other source has at most 16 bits. A float32 represents such an element exactly, so
		// that converting by way of float32 does not round twice.
		//
		// n is a multiple of 4, so that n elements of any format fill whole bytes.
		var buf [4096]byte
		const n = len(buf) / 4
		in, out := n*from.Bits()/8, n*to.Bits()/8
		for len(src) > 0 {
			k := min(in, len(src))
			wide := buf[:k*8/from.Bits()*4]
			toF32(wide, src[:k], from, false)
			src = src[k:]
			k = min(out, len(dst))
			fromF32(dst[:k], to, wide, nonTemporal)
			dst = dst[k:]
		}
	}
}

// toF32 converts to F32 from any format except F32.
func toF32(dst, src []byte, from Format, nonTemporal bool) {
	if !vectorToF32(dst, src, from, nonTemporal) {
		portableToF32(dst, src, from)
	}
}

// portableToF32 is like toF32, but uses no assembly: it runs on any host and takes any number of
// elements.
func portableToF32(dst, src []byte, from Format) {
	switch from {
	case F64:
		f64ToF32(dst, src)
	case BF16:
		bf16ToF32(dst, src)
	case F16:
		f16ToF32(dst, src)
	case E2M3, E3M2:
		f6ToF32(dst, src, decodeTable(from))
	case F4:
		f4ToF32(dst, src, decodeTable(from))
	case I16:
		int16ToF32[int16](dst, src)
	case U16:
		int16ToF32[uint16](dst, src)
	default:
		f8ToF32(dst, src, decodeTable(from))
	}
}

// fromF32 converts from F32 to any Convertible format except F32.
func fromF32(dst []byte, to Format, src []byte, nonTemporal bool) {
	if !vectorFromF32(dst, to, src, nonTemporal) {
		portableFromF32(dst, to, src)
	}
}

// portableFromF32 is like fromF32, but uses no assembly: it runs on any host and takes any number
// of elements.
func portableFromF32(dst []byte, to Format, src []byte) {
	switch to {
	case F64:
		f32ToF64(dst, src)
	case BF16:
		f32ToBF16(dst, src)
	default:
		f32ToNarrow(dst, src, &layouts[to])
	}
}
