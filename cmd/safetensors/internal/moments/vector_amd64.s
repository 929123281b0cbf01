//go:build !purego

#include "go_asm.h"
#include "textflag.h"

// ADD_HALF adds the four numbers of X to the sums.
#define ADD_HALF(X, Y) \
	VCVTPS2PD X, Y   \
	VSUBPD Y12, Y, Y \
	VADDPD Y, Y3, Y3 \
	VMULPD Y, Y, Y   \ // not fused: the result is that of lanes.add
	VADDPD Y, Y4, Y4

// func addAVX2(l *wideLanes, b *byte, n int, shift float32)
//
// Y3 and Y4 are the sums, Y5 and Y6 least and most, Y7 to Y9 the numbers of zeros, of
// NaN and of infinities. A comparison gives -1 where it holds, so they subtract it.
TEXT ·addAVX2(SB), NOSPLIT, $0-28
	MOVQ l+0(FP), DI
	MOVQ b+8(FP), SI
	MOVQ n+16(FP), CX
	VBROADCASTSS shift+24(FP), Y11
	VCVTPS2PD X11, Y12
	VPCMPEQD Y0, Y0, Y0 // all ones
	VPSRLD $1, Y0, Y10  // the bits of a magnitude, and the largest int32
	VPSRLD $24, Y0, Y13
	VPSLLD $23, Y13, Y13 // infinity
	VXORPD Y3, Y3, Y3
	VXORPD Y4, Y4, Y4
	VMOVDQA Y10, Y5
	VPSLLD $31, Y0, Y6
	VPXOR Y7, Y7, Y7
	VPXOR Y8, Y8, Y8
	VPXOR Y9, Y9, Y9
loop:
	VMOVDQU (SI), Y0
	VPAND Y10, Y0, Y1
	VPXOR Y2, Y2, Y2
	VPCMPEQD Y2, Y1, Y2
	VPSUBD Y2, Y7, Y7
	VPCMPEQD Y13, Y1, Y2
	VPSUBD Y2, Y9, Y9
	VPCMPGTD Y13, Y1, Y1
	VPSUBD Y1, Y8, Y8
	VPOR Y1, Y2, Y2
	VBLENDVPS Y2, Y11, Y0, Y0 // shift where the number is not finite
	VPSRAD $31, Y0, Y1
	VPSRLD $1, Y1, Y1
	VPXOR Y0, Y1, Y1 // ordered
	VPMINSD Y1, Y5, Y5
	VPMAXSD Y1, Y6, Y6
	VEXTRACTF128 $1, Y0, X1
	ADD_HALF(X0, Y0)
	ADD_HALF(X1, Y1)
	ADDQ $32, SI
	SUBQ $1, CX
	JNE loop
	VMOVUPD Y3, wideLanes_sum(DI)
	VMOVUPD Y4, wideLanes_squares(DI)
	VMOVDQU Y5, wideLanes_least(DI)
	VMOVDQU Y6, wideLanes_most(DI)
	VMOVDQU Y7, wideLanes_zeros(DI)
	VMOVDQU Y8, wideLanes_nan(DI)
	VMOVDQU Y9, wideLanes_inf(DI)
	VZEROUPPER
	RET
