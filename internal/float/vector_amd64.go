//go:build !purego

package float

import "golang.org/x/sys/cpu"

// hasVector reports whether this processor can run the assembly kernels. HasAVX2 implies that the
// operating system saves the registers.
var hasVector = cpu.X86.HasAVX2 && hasF16C()

// hasAVX512 reports whether this processor can also run the kernels named for AVX-512. The other
// conversions need no such kernels: from the second-level cache on, their AVX2 kernels are as fast
// as a loop that only loads and stores the same bytes, or within a tenth of it.
var hasAVX512 = hasVector && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW

// hasF16C reports whether the processor converts binary16. x/sys/cpu has no flag for it.
func hasF16C() bool

// In the funcs below, n is the number of elements. It is at least the number in a block, see
// blockF32, and at least 32 for e4m3ToF32AVX512. If nonTemporal is true and dst is aligned to its elements, the stores bypass
// the caches.

//go:noescape
func bf16ToF32Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func f16ToF32Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func e5m2ToF32Vector(dst, src *byte, n int, nonTemporal bool)

func e4m3ToF32Vector(dst, src *byte, n int, nonTemporal bool, v *e4m3Vector) {
	if hasAVX512 && n >= 2*blockF32 {
		e4m3ToF32AVX512(dst, src, n, nonTemporal, v)
	} else {
		e4m3ToF32AVX2(dst, src, n, nonTemporal, v)
	}
}

//go:noescape
func e4m3ToF32AVX2(dst, src *byte, n int, nonTemporal bool, v *e4m3Vector)

//go:noescape
func e4m3ToF32AVX512(dst, src *byte, n int, nonTemporal bool, v *e4m3Vector)

func f32ToBF16Vector(dst, src *byte, n int, nonTemporal bool) {
	if hasAVX512 {
		f32ToBF16AVX512(dst, src, n, nonTemporal)
	} else {
		f32ToBF16AVX2(dst, src, n, nonTemporal)
	}
}

//go:noescape
func f32ToBF16AVX2(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func f32ToBF16AVX512(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func f32ToF16Vector(dst, src *byte, n int, nonTemporal bool)

// integersToF32 converts integers and returns true, or leaves dst unchanged and returns false.
func integersToF32(dst, src []byte, from Format, nonTemporal bool) bool {
	n := len(dst) / 4
	switch from {
	case I8:
		i8ToF32Vector(&dst[0], &src[0], n, nonTemporal)
	case U8:
		u8ToF32Vector(&dst[0], &src[0], n, nonTemporal)
	case I16:
		i16ToF32Vector(&dst[0], &src[0], n, nonTemporal)
	case U16:
		u16ToF32Vector(&dst[0], &src[0], n, nonTemporal)
	default:
		return false
	}
	return true
}

//go:noescape
func i8ToF32Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func u8ToF32Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func i16ToF32Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func u16ToF32Vector(dst, src *byte, n int, nonTemporal bool)
