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

func mulVector(dst, factors []float32) int { return eachVector(dst, factors, mulAVX2) }
func subVector(dst, terms []float32) int   { return eachVector(dst, terms, subAVX2) }

// eachVector does an operation with a number for each element.
func eachVector(dst, numbers []float32, kernel func(dst, other *float32, blocks int)) int {
	n := len(dst) / 8
	if !hasVector || n == 0 {
		return 0
	}
	_ = numbers[8*n-1]
	kernel(&dst[0], &numbers[0], n)
	return 8 * n
}

func mulGroupsVector(dst, factors []float32, group int) int {
	return groupsVector(dst, factors, group, mulGroupsAVX2)
}

func subGroupsVector(dst, terms []float32, group int) int {
	return groupsVector(dst, terms, group, subGroupsAVX2)
}

func addGroupsVector(dst, terms []float32, group int) int {
	return groupsVector(dst, terms, group, addGroupsAVX2)
}

// groupsVector does an operation with a number for each whole group, of whole blocks.
func groupsVector(dst, numbers []float32, group int, kernel func(dst, other *float32, groups, blocks int)) int {
	n := len(dst) / group
	if !hasVector || group%8 != 0 || n == 0 {
		return 0
	}
	_ = numbers[n-1]
	kernel(&dst[0], &numbers[0], n, group/8)
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
