//go:build !purego

#include "textflag.h"

// Every amd64 processor has these instructions. Loads need no alignment.

// CLEAR sets X0 to X3 to zero: the sums of the squares funcs, each of which consists of two numbers.
#define CLEAR \
	XORPS X0, X0; \
	XORPS X1, X1; \
	XORPS X2, X2; \
	XORPS X3, X3

// ADD_SQUARES adds the squares of the four float32 in X to SUM and SUM2.
#define ADD_SQUARES(X, SUM, SUM2) \
	PSHUFD $0xee, X, X6; \
	CVTPS2PD X, X; \
	CVTPS2PD X6, X6; \
	MULPD X, X; \
	MULPD X6, X6; \
	ADDPD X, SUM; \
	ADDPD X6, SUM2

// TOTAL puts the sum of X0 to X3 into X0.
#define TOTAL \
	ADDPD X1, X0; \
	ADDPD X3, X2; \
	ADDPD X2, X0; \
	MOVHLPS X0, X1; \
	ADDSD X1, X0

// func squares2(data *byte, n int) float64
TEXT ·squares2(SB), NOSPLIT, $0-24
	MOVQ data+0(FP), SI
	MOVQ n+8(FP), CX
	PXOR X7, X7
	CLEAR

block:
	MOVOU (SI), X4
	MOVO X7, X5
	MOVO X7, X8
	PUNPCKLWL X4, X5 // a BF16 is the upper half of a float32
	PUNPCKHWL X4, X8
	ADD_SQUARES(X5, X0, X1)
	ADD_SQUARES(X8, X2, X3)
	ADDQ $16, SI
	DECQ CX
	JNE  block
	TOTAL
	MOVSD X0, ret+16(FP)
	RET

// func squares4(data *byte, n int) float64
TEXT ·squares4(SB), NOSPLIT, $0-24
	MOVQ data+0(FP), SI
	MOVQ n+8(FP), CX
	CLEAR

block:
	MOVOU (SI), X4
	MOVOU 16(SI), X5
	ADD_SQUARES(X4, X0, X1)
	ADD_SQUARES(X5, X2, X3)
	ADDQ $32, SI
	DECQ CX
	JNE  block
	TOTAL
	MOVSD X0, ret+16(FP)
	RET

// The differ funcs hold, each in two numbers:
//
//	X0, X1   sums of the squares of the differences
//	X2       largest differences
//	X3       largest quotients
//	X14      the mask of the bits of a float64 without its sign
//
// X13 counts the elements whose bits are equal, in each of its lanes, and X15 is zero.

#define START \
	CLEAR; \
	PXOR X13, X13; \
	PXOR X15, X15; \
	PCMPEQL X14, X14; \
	PSRLQ $1, X14

// DIFFER_2 compares the two float32 in the lower half of A with those of B.
#define DIFFER_2(A, B, SUM) \
	CVTPS2PD A, X8; \
	CVTPS2PD B, X9; \
	SUBPD X9, X8; \
	ANDPD X14, X8; \
	ANDPD X14, X9; \
	MOVAPD X8, X10; \
	MULPD X10, X10; \
	ADDPD X10, SUM; \
	MAXPD X8, X2; \
	DIVPD X9, X8; \
	CMPPD X15, X9, 4; \
	ANDPD X9, X8; \
	MAXPD X8, X3

// DIFFER_4 compares the four float32 in A with those in B.
#define DIFFER_4(A, B) \
	DIFFER_2(A, B, X0); \
	PSHUFD $0xee, A, A; \
	PSHUFD $0xee, B, B; \
	DIFFER_2(A, B, X1)

// STORE stores the result at AX. X13 must have lanes of 32 bits.
#define STORE \
	ADDPD X1, X0; \
	MOVHLPS X0, X4; \
	ADDSD X4, X0; \
	MOVHLPS X2, X4; \
	MAXSD X4, X2; \
	MOVHLPS X3, X4; \
	MAXSD X4, X3; \
	MOVSD X0, (AX); \
	MOVSD X2, 8(AX); \
	MOVSD X3, 16(AX); \
	MOVOU X13, 24(AX)

// func differ2(a, b *byte, n int, result *result)
TEXT ·differ2(SB), NOSPLIT, $0-32
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), DI
	MOVQ n+16(FP), CX
	START

block:
	MOVOU (SI), X4
	MOVOU (DI), X5
	MOVO X4, X6
	PCMPEQW X5, X6
	PSUBW X6, X13
	PMOVMSKB X6, AX
	CMPL AX, $0xffff
	JEQ  next
	MOVO X15, X6
	MOVO X15, X7
	PUNPCKLWL X4, X6 // a BF16 is the upper half of a float32
	PUNPCKLWL X5, X7
	DIFFER_4(X6, X7)
	MOVO X15, X6
	MOVO X15, X7
	PUNPCKHWL X4, X6
	PUNPCKHWL X5, X7
	DIFFER_4(X6, X7)

next:
	ADDQ $16, SI
	ADDQ $16, DI
	DECQ CX
	JNE  block

	// Make one lane of 32 bits of each two of 16.
	MOVO X13, X4
	PUNPCKLWL X15, X13
	PUNPCKHWL X15, X4
	PADDL X4, X13
	MOVQ result+24(FP), AX
	STORE
	RET

// func differ4(a, b *byte, n int, result *result)
TEXT ·differ4(SB), NOSPLIT, $0-32
	MOVQ a+0(FP), SI
	MOVQ b+8(FP), DI
	MOVQ n+16(FP), CX
	START

block:
	MOVOU (SI), X4
	MOVOU (DI), X5
	MOVO X4, X6
	PCMPEQL X5, X6
	PSUBL X6, X13
	PMOVMSKB X6, AX
	CMPL AX, $0xffff
	JEQ  next
	DIFFER_4(X4, X5)

next:
	ADDQ $16, SI
	ADDQ $16, DI
	DECQ CX
	JNE  block
	MOVQ result+24(FP), AX
	STORE
	RET
