//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Conversion kernels for NEON. vector.go has the contract.
//
// Throughout, R0 is dst, R1 is src and R2 the number of elements left. A CONVERT
// macro turns the block at R1 into 64 bytes of output in V0 to V3. It leaves R0,
// R1 and R2 alone.
//
// No result depends on FPCR.FZ, which flushes subnormals. Where binary16 is
// converted to or from float32, a subnormal float32 only occurs as an input that
// rounds to zero anyway. E4M3 is scaled as a normal float32. BF16 is integer
// arithmetic.

// Instructions that the assembler lacks. The operands are in its order.
#define FCVTL_4H(n, d)  WORD $(0x0e217800 | n<<5 | d)       // fcvtl  vd.4s, vn.4h
#define FCVTL2_8H(n, d) WORD $(0x4e217800 | n<<5 | d)       // fcvtl2 vd.4s, vn.8h
#define FCVTN_4S(n, d)  WORD $(0x0e216800 | n<<5 | d)       // fcvtn  vd.4h, vn.4s
#define FCVTN2_4S(n, d) WORD $(0x4e216800 | n<<5 | d)       // fcvtn2 vd.8h, vn.4s
#define SSHLL_7(n, d)   WORD $(0x0f0fa400 | n<<5 | d)       // sshll  vd.8h, vn.8b, #7
#define SSHLL2_7(n, d)  WORD $(0x4f0fa400 | n<<5 | d)       // sshll2 vd.8h, vn.16b, #7
#define FMUL_4S(m, n, d) WORD $(0x6e20dc00 | m<<16 | n<<5 | d) // fmul  vd.4s, vn.4s, vm.4s
#define FCMEQ_4S(m, n, d) WORD $(0x4e20e400 | m<<16 | n<<5 | d) // fcmeq vd.4s, vn.4s, vm.4s

// WALK applies CONVERT to all elements, N to a block, of which there must be at
// least one. 1<<IN and 1<<OUT are the sizes of an element in src and dst.
#define WALK(CONVERT, N, IN, OUT) \
	MOVD dst+0(FP), R0    \
	MOVD src+8(FP), R1    \
	MOVD n+16(FP), R2     \
	SUB $N, R2            \
loop:                         \
	CONVERT               \
	VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R0) \
	ADD $(N<<IN), R1      \
	ADD $64, R0           \
	SUBS $N, R2           \
	BGE loop              \
	ADD $N, R2, R3        \ // R2 is the number of elements left, minus N
	CBZ R3, done          \
	ADD R2<<IN, R1        \ // step back to the block that ends with src
	ADD R2<<OUT, R0       \
	CONVERT               \
	VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R0) \
done:                         \
	RET

// BF16 is the upper half of a float32. V8 is zero.
#define BF16_TO_F32 \
	VLD1 (R1), [V4.B16, V5.B16] \
	VZIP1 V4.H8, V8.H8, V0.H8   \
	VZIP2 V4.H8, V8.H8, V1.H8   \
	VZIP1 V5.H8, V8.H8, V2.H8   \
	VZIP2 V5.H8, V8.H8, V3.H8

// func bf16ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·bf16ToF32Vector(SB), NOSPLIT, $0-25
	VEOR V8.B16, V8.B16, V8.B16
	WALK(BF16_TO_F32, 16, 1, 2)

// V4 and V5 are binary16.
#define WIDEN_F16 \
	FCVTL_4H(4, 0)  \
	FCVTL2_8H(4, 1) \
	FCVTL_4H(5, 2)  \
	FCVTL2_8H(5, 3)

#define F16_TO_F32 \
	VLD1 (R1), [V4.B16, V5.B16] \
	WIDEN_F16

// func f16ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·f16ToF32Vector(SB), NOSPLIT, $0-25
	WALK(F16_TO_F32, 16, 1, 2)

// E5M2 is the upper half of a binary16. V8 is zero.
#define E5M2_TO_F32 \
	VLD1 (R1), [V6.B16]          \
	VZIP1 V6.B16, V8.B16, V4.B16 \
	VZIP2 V6.B16, V8.B16, V5.B16 \
	WIDEN_F16

// func e5m2ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·e5m2ToF32Vector(SB), NOSPLIT, $0-25
	VEOR V8.B16, V8.B16, V8.B16
	WALK(E5M2_TO_F32, 16, 0, 2)

// FIX_E4M3 turns sign-extended elements in V, shifted by 7, into binary16 with
// the bias of the element. V9 is 0xbfff, V10 to V12 are as in E4M3_TO_F32.
#define FIX_E4M3(V) \
	VAND V9.B16, V.B16, V.B16    \ // clear the copy of the sign in the top bit of the exponent
	VAND V10.B16, V.B16, V7.B16  \
	VCMEQ V11.H8, V7.H8, V7.H8   \
	VAND V12.B16, V7.B16, V7.B16 \
	VEOR V7.B16, V.B16, V.B16

// By way of binary16, with the fields of an e4m3Vector in V10 (complement of
// ignore), V11 (nan), V12 (flip) and V13 (scale).
#define E4M3_TO_F32 \
	VLD1 (R1), [V6.B16] \
	SSHLL_7(6, 4)       \
	SSHLL2_7(6, 5)      \
	FIX_E4M3(V4)        \
	FIX_E4M3(V5)        \
	WIDEN_F16           \
	FMUL_4S(13, 0, 0)   \
	FMUL_4S(13, 1, 1)   \
	FMUL_4S(13, 2, 2)   \
	FMUL_4S(13, 3, 3)

// func e4m3ToF32Vector(dst, src *byte, n int, nonTemporal bool, v *e4m3Vector)
TEXT ·e4m3ToF32Vector(SB), NOSPLIT, $0-40
	MOVD v+32(FP), R3
	MOVHU e4m3Vector_ignore(R3), R4
	MVN R4, R4
	VDUP R4, V10.H8
	MOVHU e4m3Vector_nan(R3), R4
	VDUP R4, V11.H8
	MOVHU e4m3Vector_flip(R3), R4
	VDUP R4, V12.H8
	MOVWU e4m3Vector_scale(R3), R4
	VDUP R4, V13.S4
	MOVD $0xbfff, R4
	VDUP R4, V9.H8
	WALK(E4M3_TO_F32, 16, 0, 2)

// ROUND_BF16 rounds four float32: it adds 0x7fff, and 1 if the lowest bit to
// keep is set. It makes a NaN quiet instead. V16 holds 1, V17 0x7fff and V18 the
// quiet bit, each four times. n is the number of V.
#define ROUND_BF16(V, n) \
	VUSHR $16, V.S4, V19.S4       \
	VAND V16.B16, V19.B16, V19.B16 \
	VADD V17.S4, V19.S4, V19.S4   \
	FCMEQ_4S(n, n, 20)            \ // all zeros for a NaN
	VORR V18.B16, V.B16, V21.B16  \
	VADD V19.S4, V.S4, V.S4       \
	VBIF V20.B16, V21.B16, V.B16    // V21 where V20 is zero

// The results are the upper halves of the rounded float32.
#define F32_TO_BF16 \
	ADD $64, R1, R3             \
	VLD1 (R1), [V4.S4, V5.S4, V6.S4, V7.S4] \
	VLD1 (R3), [V8.S4, V9.S4, V10.S4, V11.S4] \
	ROUND_BF16(V4, 4)           \
	ROUND_BF16(V5, 5)           \
	ROUND_BF16(V6, 6)           \
	ROUND_BF16(V7, 7)           \
	ROUND_BF16(V8, 8)           \
	ROUND_BF16(V9, 9)           \
	ROUND_BF16(V10, 10)         \
	ROUND_BF16(V11, 11)         \
	VUZP2 V5.H8, V4.H8, V0.H8   \
	VUZP2 V7.H8, V6.H8, V1.H8   \
	VUZP2 V9.H8, V8.H8, V2.H8   \
	VUZP2 V11.H8, V10.H8, V3.H8

// func f32ToBF16Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·f32ToBF16Vector(SB), NOSPLIT, $0-25
	MOVD $1, R4
	VDUP R4, V16.S4
	MOVD $0x7fff, R4
	VDUP R4, V17.S4
	MOVD $0x400000, R4
	VDUP R4, V18.S4
	WALK(F32_TO_BF16, 32, 2, 1)

#define F32_TO_F16 \
	ADD $64, R1, R3 \
	VLD1 (R1), [V4.S4, V5.S4, V6.S4, V7.S4] \
	VLD1 (R3), [V8.S4, V9.S4, V10.S4, V11.S4] \
	FCVTN_4S(4, 0)   \
	FCVTN2_4S(5, 0)  \
	FCVTN_4S(6, 1)   \
	FCVTN2_4S(7, 1)  \
	FCVTN_4S(8, 2)   \
	FCVTN2_4S(9, 2)  \
	FCVTN_4S(10, 3)  \
	FCVTN2_4S(11, 3)

// func f32ToF16Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·f32ToF16Vector(SB), NOSPLIT, $0-25
	WALK(F32_TO_F16, 32, 2, 1)
