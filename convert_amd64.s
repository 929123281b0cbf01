//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Conversion kernels for AVX2 and F16C. See convert_vector.go for the contract.
//
// Throughout, DI is dst, SI is src, CX the number of elements left. A CONVERT
// macro turns the block at SI into 64 bytes of output in Y0 and Y1 and leaves
// DI, SI, CX and AX alone. No instruction used flushes subnormals, whatever
// MXCSR says: conversions from and to binary16 ignore its DAZ, F8 is scaled as
// a normal float32, and BF16 is integer arithmetic.

// WALK applies CONVERT to all elements, N to a block: 1<<IN and 1<<OUT are the
// sizes of an element in src and dst.
#define WALK(CONVERT, N, IN, OUT) \
	MOVQ dst+0(FP), DI        \
	MOVQ src+8(FP), SI        \
	MOVQ n+16(FP), CX         \
	CMPB stream+24(FP), $0    \
	JEQ  cached               \
	MOVQ DI, AX               \
	NEGQ AX                   \
	ANDQ $63, AX              \ // bytes to the next cache line
	TESTQ $((1<<OUT)-1), AX   \
	JNE  cached               \ // elements straddle cache lines
	CONVERT                   \ // one block that overlaps the next
	VMOVUPS Y0, (DI)          \
	VMOVUPS Y1, 32(DI)        \
	ADDQ AX, DI               \
	SHRQ $OUT, AX             \
	SUBQ AX, CX               \
	SHLQ $IN, AX              \
	ADDQ AX, SI               \
	SUBQ $N, CX               \
	JLT  fence                \
streamed:                         \
	CONVERT                   \
	PREFETCHT0 2048(SI)       \ // what is read does not come from the caches either
	VMOVNTPS Y0, (DI)         \
	VMOVNTPS Y1, 32(DI)       \
	ADDQ $(N<<IN), SI         \
	ADDQ $64, DI              \
	SUBQ $N, CX               \
	JGE  streamed             \
fence:                            \
	SFENCE                    \
	JMP  rest                 \
cached:                           \
	SUBQ $N, CX               \
loop:                             \
	CONVERT                   \
	VMOVUPS Y0, (DI)          \
	VMOVUPS Y1, 32(DI)        \
	ADDQ $(N<<IN), SI         \
	ADDQ $64, DI              \
	SUBQ $N, CX               \
	JGE  loop                 \
rest:                             \ // CX is now the number of elements left, less N
	CMPQ CX, $-N              \
	JEQ  done                 \
	SHLQ $IN, CX              \ // step back, to a block that ends with src
	ADDQ CX, SI               \
	SARQ $IN, CX              \
	SHLQ $OUT, CX             \
	ADDQ CX, DI               \
	CONVERT                   \
	VMOVUPS Y0, (DI)          \
	VMOVUPS Y1, 32(DI)        \
done:                             \
	VZEROUPPER                \
	RET

// func hasF16C() bool
TEXT ·hasF16C(SB), NOSPLIT, $0-1
	MOVL $1, AX
	XORL CX, CX
	CPUID
	SHRL $29, CX // CPUID.1:ECX.F16C
	ANDL $1, CX
	MOVB CX, ret+0(FP)
	RET

// BF16 is the upper half of a float32.
#define BF16_TO_F32 \
	VPMOVZXWD (SI), Y0   \
	VPMOVZXWD 16(SI), Y1 \
	VPSLLD $16, Y0, Y0   \
	VPSLLD $16, Y1, Y1

// func bf16ToF32Vector(dst, src *byte, n int, stream bool)
TEXT ·bf16ToF32Vector(SB), NOSPLIT, $0-25
	WALK(BF16_TO_F32, 16, 1, 2)

#define F16_TO_F32 \
	VCVTPH2PS (SI), Y0 \
	VCVTPH2PS 16(SI), Y1

// func f16ToF32Vector(dst, src *byte, n int, stream bool)
TEXT ·f16ToF32Vector(SB), NOSPLIT, $0-25
	WALK(F16_TO_F32, 16, 1, 2)

// F8_E5M2 is the upper half of a binary16. Y8 is zero.
#define F8_E5M2_TO_F32 \
	VMOVDQU (SI), X1        \
	VPUNPCKLBW X1, X8, X0   \
	VPUNPCKHBW X1, X8, X1   \
	VCVTPH2PS X0, Y0        \
	VCVTPH2PS X1, Y1

// func f8E5M2ToF32Vector(dst, src *byte, n int, stream bool)
TEXT ·f8E5M2ToF32Vector(SB), NOSPLIT, $0-25
	VPXOR X8, X8, X8
	WALK(F8_E5M2_TO_F32, 16, 0, 2)

// By way of binary16, with 0xbfff in Y9 and the fields of an f8Vector in Y10
// (complement of ignore), Y11 (nan), Y12 (flip) and Y13 (scale).
#define F8_E4M3_TO_F32 \
	VPMOVSXBW (SI), Y0      \
	VPSLLW $7, Y0, Y0       \
	VPAND Y9, Y0, Y0        \ // the exponent is one bit wider, and its top bit clear
	VPAND Y10, Y0, Y1       \
	VPCMPEQW Y11, Y1, Y1    \
	VPAND Y12, Y1, Y1       \
	VPXOR Y1, Y0, Y0        \
	VEXTRACTI128 $1, Y0, X1 \
	VCVTPH2PS X0, Y0        \
	VCVTPH2PS X1, Y1        \
	VMULPS Y13, Y0, Y0      \
	VMULPS Y13, Y1, Y1

// func f8E4M3ToF32Vector(dst, src *byte, n int, stream bool, v *f8Vector)
TEXT ·f8E4M3ToF32Vector(SB), NOSPLIT, $0-40
	MOVQ v+32(FP), AX
	VPBROADCASTW f8Vector_ignore(AX), Y10
	VPBROADCASTW f8Vector_nan(AX), Y11
	VPBROADCASTW f8Vector_flip(AX), Y12
	VBROADCASTSS f8Vector_scale(AX), Y13
	VPCMPEQW Y0, Y0, Y0 // all ones
	VPXOR Y0, Y10, Y10
	VPSRLW $15, Y0, Y9
	VPSLLW $14, Y9, Y9
	VPXOR Y0, Y9, Y9
	WALK(F8_E4M3_TO_F32, 16, 0, 2)

// ROUND_BF16 rounds eight float32: adds 0x7fff, and 1 if the lowest bit kept is
// set, and shifts; a NaN is made quiet instead. Y8 holds 1, Y9 0x7fff and Y10
// the quiet bit, each eight times.
#define ROUND_BF16(Y) \
	VPSRLD $16, Y, Y4   \
	VPAND Y8, Y4, Y4    \
	VPADDD Y9, Y4, Y4   \
	VCMPPS $3, Y, Y, Y5 \ // unordered: all ones for a NaN
	VPANDN Y4, Y5, Y4   \
	VPADDD Y4, Y, Y     \
	VPAND Y10, Y5, Y5   \
	VPOR Y5, Y, Y       \
	VPSRLD $16, Y, Y

#define F32_TO_BF16 \
	VMOVUPS (SI), Y0      \
	VMOVUPS 32(SI), Y1    \
	VMOVUPS 64(SI), Y2    \
	VMOVUPS 96(SI), Y3    \
	ROUND_BF16(Y0)        \
	ROUND_BF16(Y1)        \
	ROUND_BF16(Y2)        \
	ROUND_BF16(Y3)        \
	VPACKUSDW Y1, Y0, Y0  \ // packs each half apart: quadwords 0 2 1 3
	VPACKUSDW Y3, Y2, Y1  \
	VPERMQ $0xd8, Y0, Y0  \
	VPERMQ $0xd8, Y1, Y1

// func f32ToBF16Vector(dst, src *byte, n int, stream bool)
TEXT ·f32ToBF16Vector(SB), NOSPLIT, $0-25
	VPCMPEQD Y9, Y9, Y9
	VPSRLD $31, Y9, Y8
	VPSLLD $22, Y8, Y10
	VPSRLD $17, Y9, Y9
	WALK(F32_TO_BF16, 32, 2, 1)

// The immediate 0 asks for nearest even, whatever MXCSR says.
#define F32_TO_F16 \
	VMOVUPS (SI), Y0           \
	VMOVUPS 32(SI), Y2         \
	VMOVUPS 64(SI), Y1         \
	VMOVUPS 96(SI), Y3         \
	VCVTPS2PH $0, Y0, X0       \
	VCVTPS2PH $0, Y2, X2       \
	VCVTPS2PH $0, Y1, X1       \
	VCVTPS2PH $0, Y3, X3       \
	VINSERTI128 $1, X2, Y0, Y0 \
	VINSERTI128 $1, X3, Y1, Y1

// func f32ToF16Vector(dst, src *byte, n int, stream bool)
TEXT ·f32ToF16Vector(SB), NOSPLIT, $0-25
	WALK(F32_TO_F16, 32, 2, 1)
