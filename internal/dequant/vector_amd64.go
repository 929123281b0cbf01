//go:build !purego

package dequant

import "golang.org/x/sys/cpu"

// hasVector reports whether this processor can run the assembly kernels.
var hasVector = cpu.X86.HasAVX2

// The funcs whose names end in Vector work on whole blocks of 8 elements, and return how many
// elements they have processed. The caller processes the rest in a loop.

// unpackVector unpacks groups of eight codes, if these have at most 4 bits.
func unpackVector(dst []float32, src []byte, p Packing, numbers *Table) int {
	if !hasVector || p.Bits > 4 || len(dst) < 8 || len(src) < 4 { // the kernel reads words of 4 bytes
		return 0
	}
	n := min(len(dst)/8, (len(src)-4)/p.Bits+1)
	var shifts [8]uint32
	for code := range shifts {
		element := code
		if p.Order != nil {
			element = p.Order[code]
		}
		shifts[element] = uint32(p.Bits * code)
	}
	unpackAVX2(&dst[0], &src[0], n, p.Bits, 1<<p.Bits-1, &shifts, (*[16]float32)(numbers[:]))
	return 8 * n
}

// downVector unpacks one code from each word of 32 bits, if the codes have at most 4 bits.
func downVector(dst []float32, words []byte, shift, bits int, numbers *Table) int {
	n := len(dst) / 8
	if !hasVector || n == 0 || bits > 4 {
		return 0
	}
	_ = words[32*n-1]
	downAVX2(&dst[0], &words[0], n, shift, 1<<bits-1, (*[16]float32)(numbers[:]))
	return 8 * n
}

// mulVector multiplies each element by its own factor.
func mulVector(dst, factors []float32) int {
	n := len(dst) / 8
	if !hasVector || n == 0 {
		return 0
	}
	_ = factors[8*n-1]
	mulAVX2(&dst[0], &factors[0], n)
	return 8 * n
}

// groupsVector applies f to the whole groups in dst, if their size is a multiple of 8.
func groupsVector(dst, numbers []float32, group int, f kernel) int {
	n := len(dst) / group
	if !hasVector || group%8 != 0 || n == 0 {
		return 0
	}
	_ = numbers[n-1]
	f(&dst[0], &numbers[0], n, group/8)
	return n * group
}

//go:noescape
func unpackAVX2(dst *float32, src *byte, groups, bits, mask int, shifts *[8]uint32, numbers *[16]float32)

//go:noescape
func downAVX2(dst *float32, words *byte, blocks, shift, mask int, numbers *[16]float32)

//go:noescape
func mulAVX2(dst, other *float32, blocks int)

//go:noescape
func mulGroups(dst, other *float32, groups, blocks int)

//go:noescape
func subGroups(dst, other *float32, groups, blocks int)

//go:noescape
func addGroups(dst, other *float32, groups, blocks int)
