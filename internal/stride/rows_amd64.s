//go:build !purego

#include "textflag.h"

// Every amd64 processor has these instructions. The last 64 bytes of a row may overlap
// those before them. A prefetch never faults.

// func copyRows(dst, src *byte, run, stride, n, ahead int)
TEXT ·copyRows(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ run+16(FP), CX
	MOVQ stride+24(FP), DX
	MOVQ n+32(FP), BX
	MOVQ ahead+40(FP), R8
	ADDQ SI, R8
	LEAQ -64(CX), R10 // where the last 64 bytes of a row start

row:
	XORL R9, R9
	JMP  check

line:
	PREFETCHT0 (R8)(R9*1)
	MOVOU (SI)(R9*1), X0
	MOVOU 16(SI)(R9*1), X1
	MOVOU 32(SI)(R9*1), X2
	MOVOU 48(SI)(R9*1), X3
	MOVOU X0, (DI)(R9*1)
	MOVOU X1, 16(DI)(R9*1)
	MOVOU X2, 32(DI)(R9*1)
	MOVOU X3, 48(DI)(R9*1)
	ADDQ $64, R9

check:
	CMPQ R9, R10
	JLT  line
	PREFETCHT0 (R8)(R10*1)
	PREFETCHT0 63(R8)(R10*1)
	MOVOU (SI)(R10*1), X0
	MOVOU 16(SI)(R10*1), X1
	MOVOU 32(SI)(R10*1), X2
	MOVOU 48(SI)(R10*1), X3
	MOVOU X0, (DI)(R10*1)
	MOVOU X1, 16(DI)(R10*1)
	MOVOU X2, 32(DI)(R10*1)
	MOVOU X3, 48(DI)(R10*1)
	ADDQ DX, SI
	ADDQ DX, R8
	ADDQ CX, DI
	DECQ BX
	JNE  row
	RET
