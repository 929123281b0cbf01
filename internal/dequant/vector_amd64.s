//go:build !purego

#include "textflag.h"

// LOOKUP turns the indices 0 to 15 in Y2 into the numbers of the table in Y0 and Y1.
// Bit 3 of an index chooses between the halves: as the sign, which a blend looks at.
#define LOOKUP \
	VPERMPS Y0, Y2, Y3     \
	VPERMPS Y1, Y2, Y4     \
	VPSLLD  $28, Y2, Y2    \
	VBLENDVPS Y2, Y4, Y3, Y3

// GROUPS is dst op= other, an element of other for each group of dst.
#define GROUPS(OP) \
	MOVQ dst+0(FP), DI      \
	MOVQ other+8(FP), SI    \
	MOVQ groups+16(FP), CX  \
	MOVQ blocks+24(FP), BX  \
group:                          \
	VBROADCASTSS (SI), Y1   \
	MOVQ BX, DX             \
block:                          \
	VMOVUPS (DI), Y0        \
	OP Y1, Y0, Y0           \
	VMOVUPS Y0, (DI)        \
	ADDQ $32, DI            \
	DECQ DX                 \
	JNE block               \
	ADDQ $4, SI             \
	DECQ CX                 \
	JNE group               \
	VZEROUPPER              \
	RET

// func unpackAVX2(dst *float32, src *byte, groups, bits, mask int, shifts *[8]uint32, numbers *[16]float32)
TEXT ·unpackAVX2(SB), NOSPLIT, $0-56
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ groups+16(FP), CX
	MOVQ bits+24(FP), R8
	MOVQ mask+32(FP), DX
	MOVQ shifts+40(FP), AX
	MOVQ numbers+48(FP), BX
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	VMOVDQU (AX), Y5
	MOVQ DX, X6
	VPBROADCASTD X6, Y6
loopUnpack:
	VPBROADCASTD (SI), Y2
	VPSRLVD Y5, Y2, Y2
	VPAND Y6, Y2, Y2
	LOOKUP
	VMOVUPS Y3, (DI)
	ADDQ R8, SI
	ADDQ $32, DI
	DECQ CX
	JNE loopUnpack
	VZEROUPPER
	RET

// func downAVX2(dst *float32, words *byte, blocks, shift, mask int, numbers *[16]float32)
TEXT ·downAVX2(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ words+8(FP), SI
	MOVQ blocks+16(FP), CX
	MOVQ shift+24(FP), AX
	MOVQ mask+32(FP), DX
	MOVQ numbers+40(FP), BX
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	MOVQ AX, X5
	MOVQ DX, X6
	VPBROADCASTD X6, Y6
loopDown:
	VMOVDQU (SI), Y2
	VPSRLD X5, Y2, Y2
	VPAND Y6, Y2, Y2
	LOOKUP
	VMOVUPS Y3, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNE loopDown
	VZEROUPPER
	RET

// func mulAVX2(dst, other *float32, blocks int)
TEXT ·mulAVX2(SB), NOSPLIT, $0-24
	MOVQ dst+0(FP), DI
	MOVQ other+8(FP), SI
	MOVQ blocks+16(FP), CX
loopMul:
	VMOVUPS (DI), Y0
	VMULPS (SI), Y0, Y0
	VMOVUPS Y0, (DI)
	ADDQ $32, SI
	ADDQ $32, DI
	DECQ CX
	JNE loopMul
	VZEROUPPER
	RET

// func mulGroups(dst, other *float32, groups, blocks int)
TEXT ·mulGroups(SB), NOSPLIT, $0-32
	GROUPS(VMULPS)

// func subGroups(dst, other *float32, groups, blocks int)
TEXT ·subGroups(SB), NOSPLIT, $0-32
	GROUPS(VSUBPS)

// func addGroups(dst, other *float32, groups, blocks int)
TEXT ·addGroups(SB), NOSPLIT, $0-32
	GROUPS(VADDPS)
