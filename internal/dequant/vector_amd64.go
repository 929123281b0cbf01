//go:build !purego

package dequant

import "golang.org/x/sys/cpu"

// hasVector reports whether the kernels run on this processor.
var hasVector = cpu.X86.HasAVX2

// The kernels work on whole blocks of 8 elements, and return how many elements that
// were. Loops do the rest.

// unpack4Vector takes words of 32 bits, eight codes of 4 bits in each.
func unpack4Vector(dst []float32, src []byte, order *[8]int, numbers *[16]float32) int {
	n := min(len(dst)/8, len(src)/4)
	if !hasVector || n == 0 {
		return 0
	}
	shifts := [8]uint32{0, 4, 8, 12, 16, 20, 24, 28}
	if order != nil {
		for code, element := range order {
			shifts[element] = uint32(4 * code)
		}
	}
	unpack4AVX2(&dst[0], &src[0], n, &shifts, numbers)
	return 8 * n
}

// downVector takes one code of at most 4 bits from each word.
func downVector(dst []float32, words []byte, shift, bits int, numbers *Table) int {
	n := len(dst) / 8
	if !hasVector || n == 0 || bits > 4 {
		return 0
	}
	_ = words[32*n-1]
	downAVX2(&dst[0], &words[0], n, shift, 1<<bits-1, (*[16]float32)(numbers[:]))
	return 8 * n
}

func mulVector(dst, factors []float32) int {
	n := len(dst) / 8
	if !hasVector || n == 0 {
		return 0
	}
	_ = factors[8*n-1]
	mulAVX2(&dst[0], &factors[0], n)
	return 8 * n
}

func subVector(dst, terms []float32) int {
	n := len(dst) / 8
	if !hasVector || n == 0 {
		return 0
	}
	_ = terms[8*n-1]
	subAVX2(&dst[0], &terms[0], n)
	return 8 * n
}

// groups returns how many whole groups dst has, 0 where the kernels cannot take them.
func groups(dst, numbers []float32, group int) int {
	if !hasVector || group%8 != 0 {
		return 0
	}
	n := len(dst) / group
	if n > 0 {
		_ = numbers[n-1]
	}
	return n
}

func mulGroupsVector(dst, factors []float32, group int) int {
	n := groups(dst, factors, group)
	if n > 0 {
		mulGroupsAVX2(&dst[0], &factors[0], n, group/8)
	}
	return n * group
}

func subGroupsVector(dst, terms []float32, group int) int {
	n := groups(dst, terms, group)
	if n > 0 {
		subGroupsAVX2(&dst[0], &terms[0], n, group/8)
	}
	return n * group
}

func addGroupsVector(dst, terms []float32, group int) int {
	n := groups(dst, terms, group)
	if n > 0 {
		addGroupsAVX2(&dst[0], &terms[0], n, group/8)
	}
	return n * group
}

// transposeVector takes the first 8 columns of a tile, and returns how many of their
// elements.
func transposeVector(dst []float32, stride int, tile []float32, width, height int) int {
	n := height / 8
	if !hasVector || n == 0 || width < 8 {
		return 0
	}
	_, _ = dst[7*stride+8*n-1], tile[(8*n-1)*width+7]
	transposeAVX2(&dst[0], stride, &tile[0], width, n)
	return 8 * n
}

//go:noescape
func unpack4AVX2(dst *float32, src *byte, words int, shifts *[8]uint32, numbers *[16]float32)

//go:noescape
func downAVX2(dst *float32, words *byte, blocks, shift, mask int, numbers *[16]float32)

//go:noescape
func mulAVX2(dst, other *float32, blocks int)

//go:noescape
func subAVX2(dst, other *float32, blocks int)

//go:noescape
func mulGroupsAVX2(dst, other *float32, groups, blocks int)

//go:noescape
func subGroupsAVX2(dst, other *float32, groups, blocks int)

//go:noescape
func addGroupsAVX2(dst, other *float32, groups, blocks int)

//go:noescape
func transposeAVX2(dst *float32, stride int, tile *float32, width, blocks int)
