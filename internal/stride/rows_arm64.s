//go:build !purego

#include "textflag.h"

// The last 64 bytes of a row may overlap those before them. A prefetch never faults.

// func copyRows(dst, src *byte, run, stride, n, ahead int)
TEXT ·copyRows(SB), NOSPLIT, $0-48
	MOVD dst+0(FP), R0
	MOVD src+8(FP), R1
	MOVD run+16(FP), R2
	MOVD stride+24(FP), R3
	MOVD n+32(FP), R4
	MOVD ahead+40(FP), R5
	ADD  R1, R5
	SUB  $64, R2, R6 // where the last 64 bytes of a row start

row:
	MOVD ZR, R7
	B    check

line:
	ADD  R7, R5, R8
	PRFM (R8), PLDL1KEEP
	ADD  R7, R1, R8
	VLD1 (R8), [V0.B16, V1.B16, V2.B16, V3.B16]
	ADD  R7, R0, R8
	VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R8)
	ADD  $64, R7

check:
	CMP  R6, R7
	BLT  line
	ADD  R6, R5, R8
	PRFM (R8), PLDL1KEEP
	ADD  $63, R8
	PRFM (R8), PLDL1KEEP
	ADD  R6, R1, R8
	VLD1 (R8), [V0.B16, V1.B16, V2.B16, V3.B16]
	ADD  R6, R0, R8
	VST1 [V0.B16, V1.B16, V2.B16, V3.B16], (R8)
	ADD  R3, R1
	ADD  R3, R5
	ADD  R2, R0
	SUBS $1, R4
	BNE  row
	RET
