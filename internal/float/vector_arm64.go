//go:build !purego

package float

// hasVector is true because every arm64 processor has NEON.
const hasVector = true

// In the funcs below, n is the number of elements, and is at least that of a block. The kernels
// ignore nonTemporal: they store through the caches.

//go:noescape
func bf16ToF32Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func f16ToF32Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func e5m2ToF32Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func e4m3ToF32Vector(dst, src *byte, n int, nonTemporal bool, v *e4m3Vector)

//go:noescape
func f32ToBF16Vector(dst, src *byte, n int, nonTemporal bool)

//go:noescape
func f32ToF16Vector(dst, src *byte, n int, nonTemporal bool)

// integersToF32 returns false, because there is no assembly for integers on arm64.
func integersToF32(dst, src []byte, from Format, nonTemporal bool) bool { return false }
