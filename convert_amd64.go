//go:build !purego

package safetensors

import "golang.org/x/sys/cpu"

// hasVector reports whether the kernels run here. HasAVX2 implies that the
// operating system keeps the registers.
var hasVector = cpu.X86.HasAVX2 && hasF16C()

// hasF16C reports whether the processor converts binary16.
func hasF16C() bool

// The kernels take n elements, at least a block of them. With stream they
// bypass the caches if dst is aligned to its elements.

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
