package float

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"sort"
)

// These are the float formats of at most 16 bits, all float formats, the integers, and the formats
// to which others can be converted.
var (
	smallFormats  = []Format{F4, E2M3, E3M2, E5M2, E4M3, E8M0, E4M3FNUZ, E5M2FNUZ, F16, BF16}
	allFormats    = append(smallFormats[:len(smallFormats):len(smallFormats)], F32, F64)
	integers      = []Format{I8, U8, I16, U16, I32, U32}
	targetFormats = []Format{E5M2, E4M3, E4M3FNUZ, E5M2FNUZ, F16, BF16, F32, F64}
)

var formatNames = map[Format]string{
	None: "None", F4: "F4", E2M3: "E2M3", E3M2: "E3M2", E5M2: "E5M2", E4M3: "E4M3", E8M0: "E8M0",
	E4M3FNUZ: "E4M3FNUZ", E5M2FNUZ: "E5M2FNUZ", F16: "F16", BF16: "BF16", F32: "F32", F64: "F64",
	I8: "I8", U8: "U8", I16: "I16", U16: "U16", I32: "I32", U32: "U32",
}

func (f Format) String() string {
	if name, ok := formatNames[f]; ok {
		return name
	}
	return fmt.Sprintf("Format(%d)", uint8(f))
}

// widths holds the bits of the exponent and of the mantissa, the bias, and the kind of special codes
// of the formats that have a sign.
var widths = [...]struct {
	exp, man, bias int
	kind           kind
}{
	F4: {2, 1, 1, allFinite}, E2M3: {2, 3, 1, allFinite}, E3M2: {3, 2, 3, allFinite}, E5M2: {5, 2, 15, likeIEEE}, E4M3: {4, 3, 7, oneNaN},
	E4M3FNUZ: {4, 3, 8, zeroNaN}, E5M2FNUZ: {5, 2, 16, zeroNaN}, F16: {5, 10, 15, likeIEEE}, BF16: {8, 7, 127, likeIEEE},
	F32: {8, 23, 127, likeIEEE}, F64: {11, 52, 1023, likeIEEE},
}

// A kind says which codes are not finite numbers.
type kind int

const (
	allFinite kind = iota
	likeIEEE       // the largest exponent is that of infinities and NaNs; a NaN has a payload
	oneNaN         // a NaN has all bits set, except perhaps the sign; there is no infinity, and conversions saturate
	zeroNaN        // the NaN has the code of negative zero; there is no negative zero and no infinity
)

func (f Format) kind() kind {
	if int(f) < len(widths) {
		return widths[f].kind
	}
	return allFinite
}

// slowDecode returns the value of a code, computed as the specifications define it.
func slowDecode(f Format, code uint64) float64 {
	switch f {
	case E8M0:
		if code == 0xff {
			return math.NaN()
		}
		return math.Ldexp(1, int(code)-127)
	case I8, I16, I32:
		if limit := uint64(1) << f.Bits(); code >= limit/2 {
			return -float64(limit - code)
		}
		return float64(code)
	case U8, U16, U32:
		return float64(code)
	case F32:
		return float64(math.Float32frombits(uint32(code)))
	case F64:
		return math.Float64frombits(code)
	}
	exp, man, bias := widths[f].exp, widths[f].man, widths[f].bias
	sign := 1.0
	if code>>(exp+man) == 1 {
		sign = -1
	}
	e, m := int(code)>>man&(1<<exp-1), float64(code&(1<<man-1))
	switch {
	case f.kind() == zeroNaN && code == 1<<(exp+man), f.kind() == oneNaN && code&(1<<(exp+man)-1) == 1<<(exp+man)-1:
		return math.NaN()
	case f.kind() == likeIEEE && e == 1<<exp-1:
		if m == 0 {
			return math.Inf(int(sign))
		}
		return math.NaN()
	case e == 0:
		return math.Copysign(math.Ldexp(m, 1-bias-man), sign)
	default:
		return math.Copysign(math.Ldexp(m+math.Ldexp(1, man), e-bias-man), sign)
	}
}

// finiteValues returns the values of the codes from 0 to the largest finite one.
func finiteValues(f Format) []float64 {
	var values []float64
	for code := uint64(0); ; code++ {
		v := slowDecode(f, code)
		if v-v != 0 || v < 0 || code > 0 && v == 0 { // the value is not finite, or the code has the sign bit
			return values
		}
		values = append(values, v)
	}
}

// A slowEncoder finds the nearest value by search. It needs values only for
// formats of at most 16 bits.
type slowEncoder struct {
	f      Format
	values []float64
}

// encode returns the code of the value nearest to x. Of two values at the same distance, it takes
// the one whose code is even. x must not be NaN.
func (s slowEncoder) encode(x float64) uint64 {
	switch s.f {
	case F64:
		return math.Float64bits(x)
	case F32:
		f, _ := big.NewFloat(x).Float32()
		return uint64(math.Float32bits(f))
	}
	last := len(s.values) - 1
	value := func(i int) float64 {
		if i > last {
			return 2*s.values[last] - s.values[last-1]
		}
		return s.values[i]
	}
	abs := math.Abs(x)
	i := sort.Search(last+1, func(i int) bool { return value(i+1) > abs })
	i = min(i, last)
	// The midpoint of two neighbours is exact in float64.
	if mid := (value(i) + value(i+1)) / 2; abs > mid || abs == mid && i%2 == 1 {
		i++
	}
	if s.f.kind() == oneNaN {
		i = min(i, last) // only this kind saturates
	}
	code := uint64(i)
	if math.Signbit(x) && !(code == 0 && s.f.kind() == zeroNaN) {
		code |= 1 << (s.f.Bits() - 1)
	}
	return code
}

// payload returns the bits of the mantissa of a format whose NaNs have a payload there, and 0 for
// other formats.
func (f Format) payload() int {
	if f.kind() == likeIEEE {
		return widths[f].man
	}
	return 0
}

// convert converts one element.
func (s slowEncoder) convert(from Format, code uint64) uint64 {
	if x := slowDecode(from, code); !math.IsNaN(x) {
		return s.encode(x)
	}
	payload := uint64(1) << 51 // aligned to the top of 52 bits, and made quiet
	if n := from.payload(); n > 0 {
		payload |= code << (52 - n) & (1<<52 - 1)
	}
	sign := from != E8M0 && code>>(from.Bits()-1) == 1
	n := s.f.payload()
	nan := uint64(1)<<(s.f.Bits()-1) - 1<<n | payload>>(52-n)
	switch {
	case s.f.kind() == oneNaN:
		nan = 1<<(s.f.Bits()-1) - 1
	case s.f.kind() == zeroNaN:
		nan = 1 << (s.f.Bits() - 1)
	case s.f == F32 && from == BF16:
		nan = code << 16 & 0x7fffffff // the bits stay unchanged, even those of a signaling NaN
	}
	if sign {
		nan |= 1 << (s.f.Bits() - 1)
	}
	return nan
}

// packCodes returns the bytes of a tensor with these codes of format f.
func packCodes(f Format, codes []uint64) []byte {
	var b []byte
	var acc, n uint64
	for _, code := range codes {
		if f == F64 {
			b = binary.LittleEndian.AppendUint64(b, code)
			continue
		}
		acc |= code << n
		for n += uint64(f.Bits()); n >= 8; n -= 8 {
			b = append(b, byte(acc))
			acc >>= 8
		}
	}
	return b
}

// unpackCodes is the inverse of packCodes.
func unpackCodes(f Format, b []byte) []uint64 {
	var codes []uint64
	var acc uint64
	var n int
	for i := 0; i < len(b); i++ {
		if f == F64 {
			codes = append(codes, binary.LittleEndian.Uint64(b[i:]))
			i += 7
			continue
		}
		acc |= uint64(b[i]) << n
		for n += 8; n >= f.Bits(); n -= f.Bits() {
			codes = append(codes, acc&(1<<f.Bits()-1))
			acc >>= f.Bits()
		}
	}
	return codes
}
