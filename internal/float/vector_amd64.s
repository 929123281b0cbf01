//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// Conversion kernels for AVX2 and F16C. Two of them have a faster variant for
// AVX-512F and AVX-512BW. vector.go has the contract.
//
// Throughout, DI is dst, SI is src and CX the number of elements left. A CONVERT
// macro turns the block at SI into registers, and STORE(MOVE) writes those to
// DI. Both leave DI, SI, CX and AX alone.
//
// Subnormals are never flushed, whatever MXCSR says: conversions from and to
// binary16 ignore its DAZ, E4M3 is scaled as a normal float32, and BF16 is
// integer arithmetic.

// WALK applies CONVERT and STORE to all elements, N to a block. 1<<IN and 1<<OUT
// are the sizes of an element in src and dst. A block is one or two cache lines
// of output. If dst is aligned to its elements, WALK aligns the stores to cache
// lines: a store across two lines costs as much as two stores. The first block
// overlaps the next, so there must be at least one block of elements.
#define WALK(CONVERT, STORE, N, IN, OUT) \
	MOVQ dst+0(FP), DI        \
	MOVQ src+8(FP), SI        \
	MOVQ n+16(FP), CX         \
	MOVQ DI, AX               \
	NEGQ AX                   \
	ANDQ $63, AX              \ // bytes to the next cache line
	JEQ  aligned              \
	TESTQ $((1<<OUT)-1), AX   \
	JNE  cached               \ // some element crosses a cache line
	CONVERT                   \ // a block that overlaps the next
	STORE(VMOVUPS)            \
	ADDQ AX, DI               \
	SHRQ $OUT, AX             \
	SUBQ AX, CX               \
	SHLQ $IN, AX              \
	ADDQ AX, SI               \
aligned:                          \
	CMPB nonTemporal+24(FP), $0 \
	JEQ  cached               \
	SUBQ $N, CX               \
	JLT  rest                 \
bypass:                           \
	CONVERT                   \
	PREFETCHT0 2048(SI)       \ // src is not in the caches either
	STORE(VMOVNTPS)           \
	ADDQ $(N<<IN), SI         \
	ADDQ $(N<<OUT), DI        \
	SUBQ $N, CX               \
	JGE  bypass               \
	SFENCE                    \
	JMP  rest                 \
cached:                           \
	SUBQ $N, CX               \
	JLT  rest                 \
loop:                             \
	CONVERT                   \
	STORE(VMOVUPS)            \
	ADDQ $(N<<IN), SI         \
	ADDQ $(N<<OUT), DI        \
	SUBQ $N, CX               \
	JGE  loop                 \
rest:                             \ // CX is the number of elements left, minus N
	CMPQ CX, $-N              \
	JEQ  done                 \
	SHLQ $IN, CX              \ // step back to the block that ends with src
	ADDQ CX, SI               \
	SARQ $IN, CX              \
	SHLQ $OUT, CX             \
	ADDQ CX, DI               \
	CONVERT                   \
	STORE(VMOVUPS)            \
done:                             \
	VZEROUPPER                \
	RET

#define STORE_Y(MOVE) \
	MOVE Y0, (DI) \
	MOVE Y1, 32(DI)

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

// func bf16ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·bf16ToF32Vector(SB), NOSPLIT, $0-25
	WALK(BF16_TO_F32, STORE_Y, 16, 1, 2)

// An integer of at most 24 bits is a float32.
#define I8_TO_F32 \
	VPMOVSXBD (SI), Y0   \
	VPMOVSXBD 8(SI), Y1 \
	VCVTDQ2PS Y0, Y0   \
	VCVTDQ2PS Y1, Y1

// func i8ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·i8ToF32Vector(SB), NOSPLIT, $0-25
	WALK(I8_TO_F32, STORE_Y, 16, 0, 2)

#define U8_TO_F32 \
	VPMOVZXBD (SI), Y0   \
	VPMOVZXBD 8(SI), Y1 \
	VCVTDQ2PS Y0, Y0   \
	VCVTDQ2PS Y1, Y1

// func u8ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·u8ToF32Vector(SB), NOSPLIT, $0-25
	WALK(U8_TO_F32, STORE_Y, 16, 0, 2)

#define I16_TO_F32 \
	VPMOVSXWD (SI), Y0   \
	VPMOVSXWD 16(SI), Y1 \
	VCVTDQ2PS Y0, Y0   \
	VCVTDQ2PS Y1, Y1

// func i16ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·i16ToF32Vector(SB), NOSPLIT, $0-25
	WALK(I16_TO_F32, STORE_Y, 16, 1, 2)

#define U16_TO_F32 \
	VPMOVZXWD (SI), Y0   \
	VPMOVZXWD 16(SI), Y1 \
	VCVTDQ2PS Y0, Y0   \
	VCVTDQ2PS Y1, Y1

// func u16ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·u16ToF32Vector(SB), NOSPLIT, $0-25
	WALK(U16_TO_F32, STORE_Y, 16, 1, 2)

#define F16_TO_F32 \
	VCVTPH2PS (SI), Y0 \
	VCVTPH2PS 16(SI), Y1

// func f16ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·f16ToF32Vector(SB), NOSPLIT, $0-25
	WALK(F16_TO_F32, STORE_Y, 16, 1, 2)

// E5M2 is the upper half of a binary16. Y8 is zero.
#define E5M2_TO_F32 \
	VMOVDQU (SI), X1        \
	VPUNPCKLBW X1, X8, X0   \
	VPUNPCKHBW X1, X8, X1   \
	VCVTPH2PS X0, Y0        \
	VCVTPH2PS X1, Y1

// func e5m2ToF32Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·e5m2ToF32Vector(SB), NOSPLIT, $0-25
	VPXOR X8, X8, X8
	WALK(E5M2_TO_F32, STORE_Y, 16, 0, 2)

// By way of binary16, with 0xbfff in Y9 and the fields of an e4m3Vector in Y10
// (complement of ignore), Y11 (nan), Y12 (flip) and Y13 (scale).
#define E4M3_TO_F32 \
	VPMOVSXBW (SI), Y0      \
	VPSLLW $7, Y0, Y0       \
	VPAND Y9, Y0, Y0        \ // clear the copy of the sign in the top bit of the exponent
	VPAND Y10, Y0, Y1       \
	VPCMPEQW Y11, Y1, Y1    \
	VPAND Y12, Y1, Y1       \
	VPXOR Y1, Y0, Y0        \
	VEXTRACTI128 $1, Y0, X1 \
	VCVTPH2PS X0, Y0        \
	VCVTPH2PS X1, Y1        \
	VMULPS Y13, Y0, Y0      \
	VMULPS Y13, Y1, Y1

// func e4m3ToF32AVX2(dst, src *byte, n int, nonTemporal bool, v *e4m3Vector)
TEXT ·e4m3ToF32AVX2(SB), NOSPLIT, $0-40
	MOVQ v+32(FP), AX
	VPBROADCASTW e4m3Vector_ignore(AX), Y10
	VPBROADCASTW e4m3Vector_nan(AX), Y11
	VPBROADCASTW e4m3Vector_flip(AX), Y12
	VBROADCASTSS e4m3Vector_scale(AX), Y13
	VPCMPEQW Y0, Y0, Y0 // all ones
	VPXOR Y0, Y10, Y10
	VPSRLW $15, Y0, Y9
	VPSLLW $14, Y9, Y9
	VPXOR Y0, Y9, Y9
	WALK(E4M3_TO_F32, STORE_Y, 16, 0, 2)

// ROUND_BF16 rounds eight float32: it adds 0x7fff, adds 1 if the lowest bit to
// keep is set, and shifts. It makes a NaN quiet instead. Y8 holds 1, Y9 0x7fff
// and Y10 the quiet bit, each eight times.
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
	VPACKUSDW Y1, Y0, Y0  \ // packs the 128-bit halves separately: quadwords 0 2 1 3
	VPACKUSDW Y3, Y2, Y1  \
	VPERMQ $0xd8, Y0, Y0  \
	VPERMQ $0xd8, Y1, Y1

// func f32ToBF16AVX2(dst, src *byte, n int, nonTemporal bool)
TEXT ·f32ToBF16AVX2(SB), NOSPLIT, $0-25
	VPCMPEQD Y9, Y9, Y9
	VPSRLD $31, Y9, Y8
	VPSLLD $22, Y8, Y10
	VPSRLD $17, Y9, Y9
	WALK(F32_TO_BF16, STORE_Y, 32, 2, 1)

// The immediate 0 selects nearest even, whatever MXCSR says. Four stores of 16
// bytes cost less than packing the results in pairs first.
#define F32_TO_F16 \
	VMOVUPS (SI), Y0     \
	VMOVUPS 32(SI), Y1   \
	VMOVUPS 64(SI), Y2   \
	VMOVUPS 96(SI), Y3   \
	VCVTPS2PH $0, Y0, X0 \
	VCVTPS2PH $0, Y1, X1 \
	VCVTPS2PH $0, Y2, X2 \
	VCVTPS2PH $0, Y3, X3

#define STORE_X(MOVE) \
	MOVE X0, (DI)   \
	MOVE X1, 16(DI) \
	MOVE X2, 32(DI) \
	MOVE X3, 48(DI)

// func f32ToF16Vector(dst, src *byte, n int, nonTemporal bool)
TEXT ·f32ToF16Vector(SB), NOSPLIT, $0-25
	WALK(F32_TO_F16, STORE_X, 32, 2, 1)

// As E4M3_TO_F32, but a block is two cache lines. Z12 is the NaN of binary16
// minus that of the element.
#define E4M3_TO_F32_Z \
	VPMOVSXBW (SI), Z0        \
	VPSLLW $7, Z0, Z0         \
	VPANDD Z9, Z0, Z0         \
	VPANDD Z10, Z0, Z1        \
	VPCMPEQW Z11, Z1, K1      \
	VPADDW Z12, Z0, K1, Z0    \
	VEXTRACTI64X4 $1, Z0, Y1  \
	VCVTPH2PS Y0, Z0          \
	VCVTPH2PS Y1, Z1          \
	VMULPS Z13, Z0, Z0        \
	VMULPS Z13, Z1, Z1

#define STORE_2Z(MOVE) \
	MOVE Z0, (DI) \
	MOVE Z1, 64(DI)

// func e4m3ToF32AVX512(dst, src *byte, n int, nonTemporal bool, v *e4m3Vector)
TEXT ·e4m3ToF32AVX512(SB), NOSPLIT, $0-40
	MOVQ v+32(FP), AX
	VPBROADCASTW e4m3Vector_ignore(AX), Z10
	VPBROADCASTW e4m3Vector_nan(AX), Z11
	VPBROADCASTW e4m3Vector_flip(AX), Z12
	VBROADCASTSS e4m3Vector_scale(AX), Z13
	VPXORD Z11, Z12, Z12
	VPSUBW Z11, Z12, Z12
	VPTERNLOGD $0xff, Z0, Z0, Z0 // all ones
	VPXORD Z0, Z10, Z10
	VPSRLW $15, Z0, Z9
	VPSLLW $14, Z9, Z9
	VPXORD Z0, Z9, Z9
	WALK(E4M3_TO_F32_Z, STORE_2Z, 32, 0, 2)

// ROUND_BF16_Z rounds as ROUND_BF16 does, without the shift. Z7 holds 1, Z8 the
// lowest bit to keep, Z9 0x7fff and Z10 the quiet bit, each sixteen times.
#define ROUND_BF16_Z(Z, ROUNDED) \
	VPTESTMD Z8, Z, K1              \
	VCMPPS $3, Z, Z, K2             \ // unordered: a NaN
	VPADDD Z9, Z, ROUNDED           \
	VPADDD Z7, ROUNDED, K1, ROUNDED \
	VPORD Z10, Z, K2, ROUNDED

// This needs the masks of AVX-512, and VPERMT2W, which keeps the upper halves in
// order. The instructions of AVX512_BF16 would flush subnormals.
#define F32_TO_BF16_Z \
	VMOVUPS (SI), Z2     \
	VMOVUPS 64(SI), Z3   \
	ROUND_BF16_Z(Z2, Z0) \
	ROUND_BF16_Z(Z3, Z1) \
	VPERMT2W Z1, Z11, Z0

#define STORE_Z(MOVE) \
	MOVE Z0, (DI)

// func f32ToBF16AVX512(dst, src *byte, n int, nonTemporal bool)
TEXT ·f32ToBF16AVX512(SB), NOSPLIT, $0-25
	VPTERNLOGD $0xff, Z9, Z9, Z9 // all ones
	VPSRLD $31, Z9, Z7
	VPSLLD $16, Z7, Z8
	VPSLLD $22, Z7, Z10
	VPSRLD $17, Z9, Z9
	VMOVDQU64 oddWords<>(SB), Z11
	WALK(F32_TO_BF16_Z, STORE_Z, 32, 2, 1)

// oddWords lists the upper halves of the doublewords of two registers.
DATA oddWords<>+0(SB)/8, $0x0007000500030001
DATA oddWords<>+8(SB)/8, $0x000f000d000b0009
DATA oddWords<>+16(SB)/8, $0x0017001500130011
DATA oddWords<>+24(SB)/8, $0x001f001d001b0019
DATA oddWords<>+32(SB)/8, $0x0027002500230021
DATA oddWords<>+40(SB)/8, $0x002f002d002b0029
DATA oddWords<>+48(SB)/8, $0x0037003500330031
DATA oddWords<>+56(SB)/8, $0x003f003d003b0039
GLOBL oddWords<>(SB), RODATA|NOPTR, $64
