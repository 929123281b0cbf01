//go:build !purego

#include "textflag.h"

// LOOKUP turns the indices 0 to 15 in Y2 into the numbers of the table in Y0 and Y1.
// Bit 3 of an index chooses between the halves: as the sign, which a blend looks at.
#define LOOKUP \
	VPERMPS Y0, Y2, Y3     \
	VPERMPS Y1, Y2, Y4     \
	VPSLLD  $28, Y2, Y2    \
	VBLENDVPS Y2, Y4, Y3, Y3

// EACH is dst op= other, by elements.
#define EACH(OP) \
	MOVQ dst+0(FP), DI     \
	MOVQ other+8(FP), SI   \
	MOVQ blocks+16(FP), CX \
loop:                          \
	VMOVUPS (DI), Y0       \
	OP (SI), Y0, Y0        \
	VMOVUPS Y0, (DI)       \
	ADDQ $32, SI           \
	ADDQ $32, DI           \
	DECQ CX                \
	JNE loop               \
	VZEROUPPER             \
	RET

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

// func unpack4AVX2(dst *float32, src *byte, words int, shifts *[8]uint32, numbers *[16]float32)
TEXT ·unpack4AVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ words+16(FP), CX
	MOVQ shifts+24(FP), AX
	MOVQ numbers+32(FP), BX
	VMOVUPS (BX), Y0
	VMOVUPS 32(BX), Y1
	VMOVDQU (AX), Y5
	VPCMPEQD Y6, Y6, Y6
	VPSRLD $28, Y6, Y6 // 15
loop4:
	VPBROADCASTD (SI), Y2
	VPSRLVD Y5, Y2, Y2
	VPAND Y6, Y2, Y2
	LOOKUP
	VMOVUPS Y3, (DI)
	ADDQ $4, SI
	ADDQ $32, DI
	DECQ CX
	JNE loop4
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
	EACH(VMULPS)

// func subAVX2(dst, other *float32, blocks int)
TEXT ·subAVX2(SB), NOSPLIT, $0-24
	EACH(VSUBPS)

// func mulGroupsAVX2(dst, other *float32, groups, blocks int)
TEXT ·mulGroupsAVX2(SB), NOSPLIT, $0-32
	GROUPS(VMULPS)

// func subGroupsAVX2(dst, other *float32, groups, blocks int)
TEXT ·subGroupsAVX2(SB), NOSPLIT, $0-32
	GROUPS(VSUBPS)

// func addGroupsAVX2(dst, other *float32, groups, blocks int)
TEXT ·addGroupsAVX2(SB), NOSPLIT, $0-32
	GROUPS(VADDPS)

// func transposeAVX2(dst *float32, stride int, tile *float32, width, blocks int)
TEXT ·transposeAVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ stride+8(FP), R8
	MOVQ tile+16(FP), SI
	MOVQ width+24(FP), R9
	MOVQ blocks+32(FP), CX
	SHLQ $2, R8
	SHLQ $2, R9
	LEAQ (R9)(R9*2), R10 // three lines
	LEAQ (R8)(R8*2), R11 // three rows
loopTranspose:
	LEAQ (SI)(R9*4), BX
	LEAQ (DI)(R8*4), DX
	VMOVUPS (SI), Y0
	VMOVUPS (SI)(R9*1), Y1
	VMOVUPS (SI)(R9*2), Y2
	VMOVUPS (SI)(R10*1), Y3
	VMOVUPS (BX), Y4
	VMOVUPS (BX)(R9*1), Y5
	VMOVUPS (BX)(R9*2), Y6
	VMOVUPS (BX)(R10*1), Y7
	VUNPCKLPS Y1, Y0, Y8  // a0 b0 a1 b1
	VUNPCKHPS Y1, Y0, Y9  // a2 b2 a3 b3
	VUNPCKLPS Y3, Y2, Y10 // c0 d0 c1 d1
	VUNPCKHPS Y3, Y2, Y11
	VUNPCKLPS Y5, Y4, Y12
	VUNPCKHPS Y5, Y4, Y13
	VUNPCKLPS Y7, Y6, Y14
	VUNPCKHPS Y7, Y6, Y15
	VUNPCKLPD Y10, Y8, Y0  // a0 b0 c0 d0
	VUNPCKHPD Y10, Y8, Y1  // a1 b1 c1 d1
	VUNPCKLPD Y11, Y9, Y2
	VUNPCKHPD Y11, Y9, Y3
	VUNPCKLPD Y14, Y12, Y4 // e0 f0 g0 h0
	VUNPCKHPD Y14, Y12, Y5
	VUNPCKLPD Y15, Y13, Y6
	VUNPCKHPD Y15, Y13, Y7
	VPERM2F128 $0x20, Y4, Y0, Y8
	VPERM2F128 $0x20, Y5, Y1, Y9
	VPERM2F128 $0x20, Y6, Y2, Y10
	VPERM2F128 $0x20, Y7, Y3, Y11
	VPERM2F128 $0x31, Y4, Y0, Y12
	VPERM2F128 $0x31, Y5, Y1, Y13
	VPERM2F128 $0x31, Y6, Y2, Y14
	VPERM2F128 $0x31, Y7, Y3, Y15
	VMOVUPS Y8, (DI)
	VMOVUPS Y9, (DI)(R8*1)
	VMOVUPS Y10, (DI)(R8*2)
	VMOVUPS Y11, (DI)(R11*1)
	VMOVUPS Y12, (DX)
	VMOVUPS Y13, (DX)(R8*1)
	VMOVUPS Y14, (DX)(R8*2)
	VMOVUPS Y15, (DX)(R11*1)
	LEAQ (SI)(R9*8), SI
	ADDQ $32, DI
	DECQ CX
	JNE loopTranspose
	VZEROUPPER
	RET
