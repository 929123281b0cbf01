//go:build !purego

#include "textflag.h"

// The instructions below are of SSE2, which every amd64 processor has.

DATA quotes<>+0(SB)/8, $0x2222222222222222
DATA quotes<>+8(SB)/8, $0x2222222222222222
GLOBL quotes<>(SB), RODATA|NOPTR, $16

DATA backslashes<>+0(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA backslashes<>+8(SB)/8, $0x5c5c5c5c5c5c5c5c
GLOBL backslashes<>(SB), RODATA|NOPTR, $16

DATA controls<>+0(SB)/8, $0x1f1f1f1f1f1f1f1f // the last of the control characters
DATA controls<>+8(SB)/8, $0x1f1f1f1f1f1f1f1f
GLOBL controls<>(SB), RODATA|NOPTR, $16

// func plainBlocks(b []byte) (n int, found bool)
TEXT ·plainBlocks(SB), NOSPLIT, $0-33
	MOVQ  b_base+0(FP), SI
	MOVQ  b_len+8(FP), CX
	ANDQ  $~15, CX
	XORL  AX, AX
	MOVOU quotes<>(SB), X0
	MOVOU backslashes<>(SB), X1
	MOVOU controls<>(SB), X2

block:
	CMPQ     AX, CX
	JEQ      done
	MOVOU    (SI)(AX*1), X3
	MOVOA    X3, X4
	PCMPEQB  X0, X4
	MOVOA    X3, X5
	PCMPEQB  X1, X5
	POR      X4, X5
	MOVOA    X3, X4
	PMINUB   X2, X4 // equal to the byte if it is a control character
	PCMPEQB  X3, X4
	POR      X4, X5
	PMOVMSKB X5, DX
	ADDQ     $16, AX
	TESTL    DX, DX
	JEQ      block
	BSFL     DX, DX
	LEAQ     -16(AX)(DX*1), AX
	MOVQ     AX, n+24(FP)
	MOVB     $1, found+32(FP)
	RET

done:
	MOVQ AX, n+24(FP)
	MOVB $0, found+32(FP)
	RET
