//go:build !purego

package compare

import (
	"math"

	"github.com/gosafetensors/safetensors"
)

// vectors reports whether this platform has the differ func.
const vectors = true

// The squares funcs return the sum of the squares of n blocks of 8 elements each, and the differ
// funcs compare n blocks of 16 bytes each: those of BF16 elements, of 2 bytes, or of F32 elements,
// of 4 bytes. n must not be 0. In differ2 it must be less than 1<<16, because each lane of 16 bits
// counts up to one element of a block. These funcs check no bounds.

//go:noescape
func squares2(data *byte, n int) float64

//go:noescape
func squares4(data *byte, n int) float64

//go:noescape
func differ2(a, b *byte, n int, result *result)

//go:noescape
func differ4(a, b *byte, n int, result *result)

// A result is that of a differ func.
type result struct {
	squares  float64   // sum of |a-b|²
	absolute float64   // largest |a-b|
	relative float64   // largest |a-b|/|b| of the elements where b is not 0
	equal    [4]uint32 // numbers of elements whose bits are equal; their sum counts
}

// squaresBF16 returns the sum of the squares of BF16 elements.
func squaresBF16(data []byte) (sum float64) {
	if n := len(data) / 16; n > 0 {
		sum, data = squares2(&data[0], n), data[16*n:]
	}
	return sum + plainSquaresBF16(data)
}

// squaresF32 returns the sum of the squares of F32 elements.
func squaresF32(data []byte) (sum float64) {
	if n := len(data) / 32; n > 0 {
		sum, data = squares4(&data[0], n), data[32*n:]
	}
	return sum + plainSquaresF32(data)
}

// differ compares BF16 or F32 elements without a tolerance. It does not set At. ok is false if it
// cannot: if the elements do not fill whole vectors, or if a difference is not finite.
func differ(dtype safetensors.DType, a, b []byte) (d Difference, ok bool) {
	var r result
	n := len(a) / 16
	if n == 0 || n >= 1<<16 || len(a)%16 != 0 || len(a) != len(b) {
		return d, false
	}
	if dtype == safetensors.BF16 {
		differ2(&a[0], &b[0], n, &r)
	} else {
		differ4(&a[0], &b[0], n, &r)
	}
	equal := int64(r.equal[0]) + int64(r.equal[1]) + int64(r.equal[2]) + int64(r.equal[3])
	d = Difference{int64(len(a)*8/dtype.Bits()) - equal, r.absolute, r.relative, r.squares, nil}
	return d, r.squares <= math.MaxFloat64
}
