package safetensors

import (
	"math"
	"math/bits"
	"sync"
)

// A floatLayout is the meaning of the bits of a float: from the top a sign bit,
// if the element has one bit more than the fields below, exp bits of exponent e
// and man bits of mantissa m. The value is ±2^(e-bias) × 1.m, or ±2^(1-bias) ×
// 0.m if e is 0 and there is a mantissa.
type floatLayout struct {
	exp, man uint8
	bias     int16
	special  floatSpecial
}

// A floatSpecial tells which codes of a layout are no numbers. In all kinds they are
// those whose magnitude, the code without its sign, is above a largest finite
// one (fnuz: is the zero with the sign set), and the first of them is what an
// overflow becomes.
type floatSpecial uint8

const (
	finite floatSpecial = iota // none
	ieee                       // all ones in e: infinity if m is 0, otherwise NaN, quiet if the top bit of m is set
	fn                         // all ones in e and m: NaN
	fnuz                       // the code of negative zero, which does not exist: NaN
)

// floatLayouts holds all that this package knows about the values of the float
// dtypes. Sources as for the constants in dtype.go; the formats of 16 bits and
// more are those of IEEE 754, BF16 with the exponent of binary32.
var floatLayouts = [...]floatLayout{
	F4:          {2, 1, 1, finite},
	F6_E2M3:     {2, 3, 1, finite},
	F6_E3M2:     {3, 2, 3, finite},
	F8_E5M2:     {5, 2, 15, ieee},
	F8_E4M3:     {4, 3, 7, fn},
	F8_E8M0:     {8, 0, 127, fn},
	F8_E4M3FNUZ: {4, 3, 8, fnuz},
	F8_E5M2FNUZ: {5, 2, 16, fnuz},
	F16:         {5, 10, 15, ieee},
	BF16:        {8, 7, 127, ieee},
	F32:         {8, 23, 127, ieee},
	F64:         {11, 52, 1023, ieee},
}

// max returns the magnitude of the largest finite code. max+1 is infinity,
// if there is one, or else NaN; for fnuz this is the sign bit alone.
func (l *floatLayout) max() uint64 {
	switch l.special {
	case ieee:
		return (1<<l.exp-1)<<l.man - 1
	case fn:
		return 1<<(l.exp+l.man) - 2
	default:
		return 1<<(l.exp+l.man) - 1
	}
}

// mantissa returns m of a code.
func (l *floatLayout) mantissa(code uint64) uint64 { return code & (1<<l.man - 1) }

// emax returns the exponent of the largest finite value.
func (l *floatLayout) emax() int { return int(l.max()>>l.man) - int(l.bias) }

// lsb returns the exponent of the smallest positive value.
func (l *floatLayout) lsb() int {
	if l.man == 0 {
		return -int(l.bias)
	}
	return 1 - int(l.bias) - int(l.man)
}

// signed reports whether the layout of dtype d has a sign bit.
func (l *floatLayout) signed(d DType) bool { return d.Bits() > int(l.exp+l.man) }

// The layout of float64, the type through which all conversions are defined.
const (
	f64Sign = 1 << 63
	f64Inf  = 0x7ff << 52 // magnitudes above are NaN
	f64NaN  = f64Inf | 1<<51
)

// decode returns the bits of the float64 of the same value. A NaN keeps its
// sign bit and its payload at the top of the mantissa, and becomes quiet.
// float64 itself need not be decoded, and its subnormals cannot.
func (l *floatLayout) decode(code uint64) uint64 {
	sign := code >> (l.exp + l.man) << 63
	mag := code & (1<<(l.exp+l.man) - 1)
	drop := 52 - l.man
	m := l.mantissa(mag)
	switch e := mag >> l.man; {
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
		// A subnormal: float64 has room to normalize it.
		shift := uint64(l.man) + 1 - uint64(bits.Len64(m))
		return sign | (1-shift+1023-uint64(l.bias))<<52 | m<<shift<<drop&(1<<52-1)
	}
}

// encode returns the code of the float64 with the bits x, rounded to nearest
// even. A NaN keeps its sign and, under ieee, what there is room for at the top
// of its payload, and becomes quiet. l is not that of F64, which need not be
// encoded: the others do not reach 2^200.
func (l *floatLayout) encode(x uint64) uint64 {
	sign := x >> 63 << (l.exp + l.man)
	mag := x &^ f64Sign
	beyond := l.max() + 1
	if mag > f64Inf {
		if l.special == ieee {
			beyond |= 1<<l.man>>1 | l.mantissa(mag>>(52-l.man))
		}
		return sign | beyond
	}
	mag = min(mag, (200+1023)<<52)
	// The unit in the last place of a result depends on its exponent, down
	// to that of the smallest normal number, which subnormals share. A sum
	// with a power of two that has this unit in float64 is rounded to it, to
	// nearest even, and what it adds to the bits of that power is the result
	// in units, with the leading 1 of a normal number at 1<<man. So that
	// goes into the exponent, as does a carry out of the mantissa.
	least := 1023 + 1 - uint64(l.bias)
	e := max(mag>>52, least)
	unit := (e + 52 - uint64(l.man)) << 52
	sum := math.Float64frombits(mag) + math.Float64frombits(unit)
	code := min((e-least)<<l.man+math.Float64bits(sum)-unit, beyond)
	if code == 0 && l.special == fnuz {
		return 0
	}
	return sign | code
}

// decodeTables holds for dtypes up to 8 bits the float32 of every code. They
// are built when first needed, so that importing the package costs nothing.
var decodeTables [F8_E5M2FNUZ + 1]struct {
	once sync.Once
	f32  [256]uint32
}

// decodeTable returns the float32 bits of every code of d, a float dtype of at
// most 8 bits.
func decodeTable(d DType) *[256]uint32 {
	t := &decodeTables[d]
	t.once.Do(func() {
		for code := range 1 << d.Bits() {
			t.f32[code] = uint32(floatLayouts[F32].encode(floatLayouts[d].decode(uint64(code))))
		}
	})
	return &t.f32
}
