//go:build !purego

package safetensors

// Every arm64 processor has NEON.
const hasVector = true

// The kernels take n elements, at least a block of them. They store through
// the caches, streamed or not.

//go:noescape
func bf16ToF32Vector(dst, src *byte, n int, stream bool)

//go:noescape
func f16ToF32Vector(dst, src *byte, n int, stream bool)

//go:noescape
func f8E5M2ToF32Vector(dst, src *byte, n int, stream bool)

//go:noescape
func f8E4M3ToF32Vector(dst, src *byte, n int, stream bool, v *f8Vector)

//go:noescape
func f32ToBF16Vector(dst, src *byte, n int, stream bool)

//go:noescape
func f32ToF16Vector(dst, src *byte, n int, stream bool)
