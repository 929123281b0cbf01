package safetensors

// streamBytes is the size of an output from which convert is to be told to
// stream. Stores past the caches cost the reader of the output what they save
// the writer, unless the output would not stay in a cache anyway. Measured,
// BF16 to F32, GB/s read and written, through and past the caches: 4 to 32 MiB
// 25 and 30, 64 MiB 12 and 29, 256 MiB 11 and 21; F32 to F16 alike
// (BenchmarkConvert, two busy cores of an AVX-512 Xeon, 2 MiB of L2 each).
const streamBytes = 32 << 20

// isFloat reports whether d is a float dtype.
func isFloat(d DType) bool { return int(d) < len(floatLayouts) && floatLayouts[d].exp != 0 }

// convertible reports whether elements of dtype from can be converted to dtype
// to: any float to any float that has a sign and a NaN, for an overflow has to
// become something, and any float to itself.
func convertible(from, to DType) bool {
	if !isFloat(from) || !isFloat(to) {
		return false
	}
	return from == to || floatLayouts[to].special != finite && floatLayouts[to].signed(to)
}

// exact reports whether every value of the float dtype from, with its zeros,
// infinities and NaN, is a value of the float dtype to.
func exact(from, to DType) bool {
	if !isFloat(from) || !isFloat(to) {
		return false
	}
	if from == to {
		return true
	}
	f, t := floatLayouts[from], floatLayouts[to]
	switch {
	case f.man > t.man, f.emax() > t.emax(), f.lsb() < t.lsb():
		return false // too precise, too large, too small
	case f.emax() == t.emax() && f.mantissa(f.max())<<(t.man-f.man) > t.mantissa(t.max()):
		return false // too large within one exponent
	case f.signed(from) && !t.signed(to):
		return false
	}
	switch t.special {
	case ieee:
		return true
	case fn:
		return f.special != ieee // no infinities
	case fnuz:
		return f.special == fnuz // no negative zero
	default:
		return f.special == finite
	}
}

// convert converts whole elements. src holds them in dtype from; dst, of
// exactly as many elements, receives them in dtype to. Both are bytes in file
// order, little endian, on every host, at any alignment, and do not overlap.
// F4 comes in multiples of 2 elements, F6 in multiples of 4, so that elements
// fill whole bytes. stream says that dst is part of an output of at least
// streamBytes, which the caches cannot keep.
//
// Widening is exact; narrowing rounds once, to nearest even, and what is too
// large becomes infinity, or NaN where there is none. The rules are those of
// decode and encode; all else here is about doing them fast.
func convert(dst []byte, to DType, src []byte, from DType, stream bool) {
	switch {
	case from == to:
		copy(dst, src)
	case to == F32:
		toF32(dst, src, from, stream)
	case from == F32:
		fromF32(dst, to, src, stream)
	case from == F64:
		f64ToNarrow(dst, src, &floatLayouts[to])
	default:
		// Every other source is 16 bits wide or less: a float32 holds it
		// exactly, so passing through one does not round.
		var buf [4096]byte
		const n = len(buf) / 4
		in, out := n*from.Bits()/8, n*to.Bits()/8
		for len(src) > 0 {
			k := min(in, len(src))
			wide := buf[:k*8/from.Bits()*4]
			toF32(wide, src[:k], from, false)
			src = src[k:]
			k = min(out, len(dst))
			fromF32(dst[:k], to, wide, stream)
			dst = dst[k:]
		}
	}
}

// toF32 converts from any float dtype but F32.
func toF32(dst, src []byte, from DType, stream bool) {
	if !vectorToF32(dst, src, from, stream) {
		portableToF32(dst, src, from)
	}
}

// portableToF32 is toF32 for any host and any number of elements.
func portableToF32(dst, src []byte, from DType) {
	switch from {
	case F64:
		f64ToF32(dst, src)
	case BF16:
		bf16ToF32(dst, src)
	case F16:
		f16ToF32(dst, src)
	case F6_E2M3, F6_E3M2:
		f6ToF32(dst, src, decodeTable(from))
	case F4:
		f4ToF32(dst, src, decodeTable(from))
	default:
		f8ToF32(dst, src, decodeTable(from))
	}
}

// fromF32 converts to any dtype that is convertible, but F32.
func fromF32(dst []byte, to DType, src []byte, stream bool) {
	if !vectorFromF32(dst, to, src, stream) {
		portableFromF32(dst, to, src)
	}
}

// portableFromF32 is fromF32 for any host and any number of elements.
func portableFromF32(dst []byte, to DType, src []byte) {
	switch to {
	case F64:
		f32ToF64(dst, src)
	case BF16:
		f32ToBF16(dst, src)
	default:
		f32ToNarrow(dst, src, &floatLayouts[to])
	}
}
