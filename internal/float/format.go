// Package float converts between the floating-point formats of tensor elements, and
// from integers to floats that represent all of them.
//
// Widening is exact. Narrowing rounds once, to nearest, ties to even.
//
// Two functions define all results: decode and encode, in format.go. They follow
// the table of layouts. The loops (loops.go) and the assembly (vector_*.s) give
// the same results faster. The tests compare all of them with a slow twin and
// with vectors made by PyTorch.
package float

import (
	"math"
	"math/bits"
	"sync"
)

// A Format is a floating-point format or an integer format. Integers can be converted to floats,
// but floats cannot be converted to integers. The zero Format, None, is neither.
type Format uint8

// The floating-point formats of at most 8 bits are named E<exponent bits>M<mantissa bits>.
const (
	None     Format = iota // neither a float nor an integer
	F4                     // E2M1
	E2M3                   // 6 bits
	E3M2                   // 6 bits
	E5M2                   // IEEE 754 with infinities and NaNs, but 8 bits
	E4M3                   // no infinities, one NaN per sign (E4M3FN)
	E8M0                   // a power of two, without a sign
	E4M3FNUZ               // no infinities, no negative zero; 0x80 is the NaN
	E5M2FNUZ               // no infinities, no negative zero; 0x80 is the NaN
	F16                    // IEEE 754 binary16
	BF16                   // the upper half of a binary32
	F32                    // IEEE 754 binary32
	F64                    // IEEE 754 binary64
	I8                     // integers; the signed ones are in two's complement
	U8
	I16
	U16
	I32
	U32
)

// Bits returns the number of bits of an element, or 0 for None.
func (f Format) Bits() int { return layouts[f].bits() }

// A layout describes the bits of a number. From the top these are: a sign bit, if sign is 1; exp
// bits of exponent e; man bits of mantissa m. The value is ±2^(e-bias) × 1.m. If e is 0 and there
// is a mantissa, the value is ±2^(1-bias) × 0.m. An integer has no exponent: its value is m, minus
// 2^man if the sign bit is set.
type layout struct {
	sign, exp, man uint8
	bias           int16
	special        special
	// overflow is the magnitude of the code for numbers beyond the largest finite one, including
	// infinity. It follows PyTorch 2.13 and later: infinity under ieee, NaN under fnuz, the largest
	// finite number under fn. It is 0 in formats without a sign or without a NaN, because Convert
	// does not round to them.
	overflow uint64
}

// A special determines the codes of a layout that are not finite numbers. Under ieee and fn these
// are the codes whose magnitude exceeds that of the largest finite value, where the magnitude is
// the code without its sign bit. Under fnuz it is the single code of negative zero.
type special uint8

const (
	finite  special = iota // no code is special
	ieee                   // e all ones: infinity if m is 0, otherwise NaN, quiet if the top bit of m is set
	fn                     // NaN if e and m are all ones
	fnuz                   // NaN takes the code of negative zero, which does not exist
	integer                // no code is special, and the format is an integer
)

// layouts holds all that this package needs to know about the formats.
//
// F4, E2M3, E3M2 and E8M0 are defined by the OCP Microscaling Formats (MX) specification v1.0, E5M2
// and E4M3 by the OCP 8-bit Floating Point Specification v1.0, the FNUZ formats (finite, unsigned
// zero) by "8-bit Numerical Formats for Deep Neural Networks" (arXiv:2206.02915), and F16, F32 and
// F64 by IEEE 754. BF16 has the exponent of F32.
var layouts = [...]layout{
	// sign, exp, man, bias, special, overflow
	None:     {},
	F4:       {1, 2, 1, 1, finite, 0},
	E2M3:     {1, 2, 3, 1, finite, 0},
	E3M2:     {1, 3, 2, 3, finite, 0},
	E5M2:     {1, 5, 2, 15, ieee, 0x7c},
	E4M3:     {1, 4, 3, 7, fn, 0x7e},
	E8M0:     {0, 8, 0, 127, fn, 0},
	E4M3FNUZ: {1, 4, 3, 8, fnuz, 0x80},
	E5M2FNUZ: {1, 5, 2, 16, fnuz, 0x80},
	F16:      {1, 5, 10, 15, ieee, 0x7c00},
	BF16:     {1, 8, 7, 127, ieee, 0x7f80},
	F32:      {1, 8, 23, 127, ieee, 0x7f800000},
	F64:      {1, 11, 52, 1023, ieee, 0x7ff << 52},
	I8:       {1, 0, 7, 0, integer, 0},
	U8:       {0, 0, 8, 0, integer, 0},
	I16:      {1, 0, 15, 0, integer, 0},
	U16:      {0, 0, 16, 0, integer, 0},
	I32:      {1, 0, 31, 0, integer, 0},
	U32:      {0, 0, 32, 0, integer, 0},
}

func (l *layout) bits() int { return int(l.sign + l.exp + l.man) }

// max returns the magnitude of the largest finite code. The code max+1 is infinity under ieee and
// NaN under fn; under fnuz it is the sign bit alone, and NaN.
func (l *layout) max() uint64 {
	switch l.special {
	case ieee:
		return (1<<l.exp-1)<<l.man - 1
	case fn:
		return 1<<(l.exp+l.man) - 2
	default:
		return 1<<(l.exp+l.man) - 1
	}
}

// mantissa returns the mantissa bits of a code.
func (l *layout) mantissa(code uint64) uint64 { return code & (1<<l.man - 1) }

// These constants are bits of a float64. Every conversion is defined by way of float64.
const (
	f64Sign = 1 << 63
	f64Inf  = 0x7ff << 52 // greater magnitudes are NaNs
	f64NaN  = f64Inf | 1<<51
)

// decode returns the bits of the float64 with the value of code. A NaN keeps its sign bit and its
// payload, at the top of the mantissa, and becomes quiet.
//
// l must not be the layout of F64: decode cannot represent its subnormals.
func (l *layout) decode(code uint64) uint64 {
	sign := code >> (l.exp + l.man) << 63
	mag := code & (1<<(l.exp+l.man) - 1)
	drop := 52 - l.man
	m := l.mantissa(mag)
	switch e := mag >> l.man; {
	case l.special == integer:
		return math.Float64bits(float64(int64(m) - int64(sign>>63<<l.man)))
	case l.special == fnuz && code == l.max()+1:
		return sign | f64NaN
	case mag > l.max()+1 && l.special == ieee:
		return sign | f64NaN | m<<drop
	case mag == l.max()+1 && l.special == ieee:
		return sign | f64Inf
	case mag > l.max():
		return sign | f64NaN
	case e > 0 || l.man == 0:
		return sign | (e+1023-uint64(l.bias))<<52 | m<<drop
	case m == 0:
		return sign
	default:
		// The code is a subnormal number, which is a normal number as a float64.
		shift := uint64(l.man) + 1 - uint64(bits.Len64(m))
		return sign | (1-shift+1023-uint64(l.bias))<<52 | m<<shift<<drop&(1<<52-1)
	}
}

// encode returns the code of the float64 with the bits x, rounded to nearest, ties to even. A NaN
// keeps its sign and becomes quiet. Under ieee it also keeps the top of its payload. Under fnuz
// there is a single NaN.
//
// l must not be the layout of F64: numbers of all other formats are below 2^200, and the clamp
// relies on that. l must have a NaN and a sign, as Convertible demands.
func (l *layout) encode(x uint64) uint64 {
	sign := x >> 63 << (l.exp + l.man)
	mag := x &^ f64Sign
	if mag > f64Inf {
		nan := l.max() + 1
		if l.special == ieee {
			nan |= 1<<l.man>>1 | l.mantissa(mag>>(52-l.man))
		}
		return sign | nan
	}
	mag = min(mag, (200+1023)<<52)
	// The unit in the last place of the result depends on its exponent. A subnormal result has the
	// unit of the smallest normal number. The power of two whose own last place in float64 is this
	// unit is added to the number, so that the addition rounds to the unit, to nearest even. The
	// bits of that power are then subtracted. The difference is the result counted in units, where
	// the leading 1 of a normal number stands at 1<<man. Adding the exponent to it absorbs that 1,
	// as well as a carry out of the mantissa.
	least := 1023 + 1 - uint64(l.bias)
	e := max(mag>>52, least)
	unit := (e + 52 - uint64(l.man)) << 52
	sum := math.Float64frombits(mag) + math.Float64frombits(unit)
	code := min((e-least)<<l.man+math.Float64bits(sum)-unit, l.overflow)
	if code == 0 && l.special == fnuz {
		return 0
	}
	return sign | code
}

// decodeTables holds the float32 of every code of the formats of at most 8 bits. A table is built
// when it is first needed, so that importing the package costs nothing.
var decodeTables [U8 + 1]struct {
	once sync.Once
	f32  [256]uint32
}

// decodeTable returns the bits of the float32 of every code of f, a format of at most 8 bits. The
// caller must not modify the table.
func decodeTable(f Format) *[256]uint32 {
	t := &decodeTables[f]
	t.once.Do(func() {
		for code := range 1 << f.Bits() {
			t.f32[code] = uint32(layouts[F32].encode(layouts[f].decode(uint64(code))))
		}
	})
	return &t.f32
}
