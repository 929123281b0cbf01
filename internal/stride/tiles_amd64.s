//go:build !purego

#include "textflag.h"

// Every amd64 processor has these instructions. Loads and stores need no alignment.
//
// Each func goes through its columns in groups that fill 8 or 16 bytes of a row, and in each group
// from the first row to the last one. In the loops, R10 points to the next row of src and R11 to the
// next bytes of the first column in dst; R12, if used, to those of the fifth column. The loops know
// these distances:
//
//	DX, R9    pitch and three times pitch
//	R8, R13   rowPitch and three times rowPitch

#define ARGUMENTS \
	MOVQ dst+0(FP), DI; \
	MOVQ src+8(FP), SI; \
	MOVQ pitch+16(FP), DX; \
	LEAQ (DX)(DX*2), R9; \
	MOVQ $256, R8; \
	LEAQ (R8)(R8*2), R13; \
	MOVQ rows+24(FP), AX; \
	MOVQ columns+32(FP), CX

// TRANSPOSE_WORDS transposes a square of eight by eight words of 16 bits. X0 to X7 hold its rows.
// It stores its columns.
#define TRANSPOSE_WORDS \
	MOVO X0, X8; \
	PUNPCKLWL X1, X0; \
	PUNPCKHWL X1, X8; \
	MOVO X2, X9; \
	PUNPCKLWL X3, X2; \
	PUNPCKHWL X3, X9; \
	MOVO X4, X10; \
	PUNPCKLWL X5, X4; \
	PUNPCKHWL X5, X10; \
	MOVO X6, X11; \
	PUNPCKLWL X7, X6; \
	PUNPCKHWL X7, X11; \
	MOVO X0, X1; \
	PUNPCKLLQ X2, X0; \
	PUNPCKHLQ X2, X1; \
	MOVO X4, X5; \
	PUNPCKLLQ X6, X4; \
	PUNPCKHLQ X6, X5; \
	MOVO X8, X3; \
	PUNPCKLLQ X9, X8; \
	PUNPCKHLQ X9, X3; \
	MOVO X10, X7; \
	PUNPCKLLQ X11, X10; \
	PUNPCKHLQ X11, X7; \
	MOVO X0, X2; \
	PUNPCKLQDQ X4, X0; \
	PUNPCKHQDQ X4, X2; \
	MOVOU X0, (R11); \
	MOVOU X2, (R11)(DX*1); \
	MOVO X1, X2; \
	PUNPCKLQDQ X5, X1; \
	PUNPCKHQDQ X5, X2; \
	MOVOU X1, (R11)(DX*2); \
	MOVOU X2, (R11)(R9*1); \
	MOVO X8, X2; \
	PUNPCKLQDQ X10, X8; \
	PUNPCKHQDQ X10, X2; \
	MOVOU X8, (R12); \
	MOVOU X2, (R12)(DX*1); \
	MOVO X3, X2; \
	PUNPCKLQDQ X7, X3; \
	PUNPCKHQDQ X7, X2; \
	MOVOU X3, (R12)(DX*2); \
	MOVOU X2, (R12)(R9*1)

// LOAD_PAIRS loads 8 bytes from each of the next four rows. In A it makes words of the bytes of the
// first two rows, in B of those of the other two.
#define LOAD_PAIRS(A, B) \
	MOVQ (R10), A; \
	MOVQ (R10)(R8*1), X8; \
	MOVQ (R10)(R8*2), B; \
	MOVQ (R10)(R13*1), X9; \
	PUNPCKLBW X8, A; \
	PUNPCKLBW X9, B; \
	LEAQ (R10)(R8*4), R10

// func tile1(dst, src *byte, pitch, rows, columns int)
TEXT ·tile1(SB), NOSPLIT, $0-40
	ARGUMENTS
	SHRQ $4, AX // 16 rows of 8 columns at a time: two rows make a row of words
	SHRQ $3, CX

columns:
	MOVQ SI, R10
	MOVQ DI, R11
	LEAQ (DI)(DX*4), R12
	MOVQ AX, BX

rows:
	LOAD_PAIRS(X0, X1)
	LOAD_PAIRS(X2, X3)
	LOAD_PAIRS(X4, X5)
	LOAD_PAIRS(X6, X7)
	TRANSPOSE_WORDS
	ADDQ $16, R11
	ADDQ $16, R12
	DECQ BX
	JNE  rows
	ADDQ $8, SI
	LEAQ (DI)(DX*8), DI
	DECQ CX
	JNE  columns
	RET

// func tile2(dst, src *byte, pitch, rows, columns int)
TEXT ·tile2(SB), NOSPLIT, $0-40
	ARGUMENTS
	SHRQ $3, AX
	SHRQ $3, CX

columns:
	MOVQ SI, R10
	MOVQ DI, R11
	LEAQ (DI)(DX*4), R12
	MOVQ AX, BX

rows:
	MOVOU (R10), X0
	MOVOU (R10)(R8*1), X1
	MOVOU (R10)(R8*2), X2
	MOVOU (R10)(R13*1), X3
	LEAQ (R10)(R8*4), R10
	MOVOU (R10), X4
	MOVOU (R10)(R8*1), X5
	MOVOU (R10)(R8*2), X6
	MOVOU (R10)(R13*1), X7
	LEAQ (R10)(R8*4), R10
	TRANSPOSE_WORDS
	ADDQ $16, R11
	ADDQ $16, R12
	DECQ BX
	JNE  rows
	ADDQ $16, SI
	LEAQ (DI)(DX*8), DI
	DECQ CX
	JNE  columns
	RET

// func tile4(dst, src *byte, pitch, rows, columns int)
TEXT ·tile4(SB), NOSPLIT, $0-40
	ARGUMENTS
	SHRQ $2, AX
	SHRQ $2, CX

columns:
	MOVQ SI, R10
	MOVQ DI, R11
	MOVQ AX, BX

rows:
	MOVOU (R10), X0
	MOVOU (R10)(R8*1), X1
	MOVOU (R10)(R8*2), X2
	MOVOU (R10)(R13*1), X3
	LEAQ (R10)(R8*4), R10
	MOVO X0, X4
	PUNPCKLLQ X1, X0
	PUNPCKHLQ X1, X4
	MOVO X2, X5
	PUNPCKLLQ X3, X2
	PUNPCKHLQ X3, X5
	MOVO X0, X1
	PUNPCKLQDQ X2, X0
	PUNPCKHQDQ X2, X1
	MOVO X4, X3
	PUNPCKLQDQ X5, X4
	PUNPCKHQDQ X5, X3
	MOVOU X0, (R11)
	MOVOU X1, (R11)(DX*1)
	MOVOU X4, (R11)(DX*2)
	MOVOU X3, (R11)(R9*1)
	ADDQ $16, R11
	DECQ BX
	JNE  rows
	ADDQ $16, SI
	LEAQ (DI)(DX*4), DI
	DECQ CX
	JNE  columns
	RET

// func tile8(dst, src *byte, pitch, rows, columns int)
TEXT ·tile8(SB), NOSPLIT, $0-40
	ARGUMENTS
	SHRQ $1, AX
	SHRQ $1, CX

columns:
	MOVQ SI, R10
	MOVQ DI, R11
	MOVQ AX, BX

rows:
	MOVOU (R10), X0
	MOVOU (R10)(R8*1), X1
	LEAQ (R10)(R8*2), R10
	MOVO X0, X2
	PUNPCKLQDQ X1, X0
	PUNPCKHQDQ X1, X2
	MOVOU X0, (R11)
	MOVOU X2, (R11)(DX*1)
	ADDQ $16, R11
	DECQ BX
	JNE  rows
	ADDQ $16, SI
	LEAQ (DI)(DX*2), DI
	DECQ CX
	JNE  columns
	RET

// func storeRows(dst, src *byte, run, pitch, n int)
TEXT ·storeRows(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ run+16(FP), CX
	MOVQ pitch+24(FP), DX
	MOVQ n+32(FP), BX

row:
	XORL R9, R9

line:
	MOVOU (SI)(R9*1), X0
	MOVOU 16(SI)(R9*1), X1
	MOVOU 32(SI)(R9*1), X2
	MOVOU 48(SI)(R9*1), X3
	MOVNTO X0, (DI)(R9*1)
	MOVNTO X1, 16(DI)(R9*1)
	MOVNTO X2, 32(DI)(R9*1)
	MOVNTO X3, 48(DI)(R9*1)
	ADDQ $64, R9
	CMPQ R9, CX
	JLT  line
	ADDQ CX, SI
	ADDQ DX, DI
	DECQ BX
	JNE  row
	SFENCE // until here, other processors may see stores that come later before these
	RET
