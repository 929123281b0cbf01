//go:build !purego

package safetensors

import "golang.org/x/sys/cpu"

// hasVector reports whether the kernels run here. HasAVX2 implies that the
// operating system keeps the registers.
var hasVector = cpu.X86.HasAVX2 && hasF16C()

// hasAVX512 reports whether the kernels named for AVX-512 run here, too. The
// other conversions have none: from the second-level cache on, those of AVX2
// are as fast as a loop that only loads and stores as many bytes as they do, or
// within a tenth.
var hasAVX512 = hasVector && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW

// hasF16C reports whether the processor converts binary16.
func hasF16C() bool

// The kernels take n elements, at least a block of them, and f8E4M3ToF32AVX512
// at least 32. With stream they bypass the caches if dst is aligned to its
// elements.

//go:noescape
func bf16ToF32Vector(dst, src *byte, n int, stream bool)

//go:noescape
func f16ToF32Vector(dst, src *byte, n int, stream bool)

//go:noescape
func f8E5M2ToF32Vector(dst, src *byte, n int, stream bool)

func f8E4M3ToF32Vector(dst, src *byte, n int, stream bool, v *f8Vector) {
	if hasAVX512 && n >= 2*blockF32 {
		f8E4M3ToF32AVX512(dst, src, n, stream, v)
	} else {
		f8E4M3ToF32AVX2(dst, src, n, stream, v)
	}
}

//go:noescape
func f8E4M3ToF32AVX2(dst, src *byte, n int, stream bool, v *f8Vector)

//go:noescape
func f8E4M3ToF32AVX512(dst, src *byte, n int, stream bool, v *f8Vector)

func f32ToBF16Vector(dst, src *byte, n int, stream bool) {
	if hasAVX512 {
		f32ToBF16AVX512(dst, src, n, stream)
	} else {
		f32ToBF16AVX2(dst, src, n, stream)
	}
}

//go:noescape
func f32ToBF16AVX2(dst, src *byte, n int, stream bool)

//go:noescape
func f32ToBF16AVX512(dst, src *byte, n int, stream bool)

//go:noescape
func f32ToF16Vector(dst, src *byte, n int, stream bool)
