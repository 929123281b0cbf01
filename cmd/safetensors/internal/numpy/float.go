package numpy

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// format returns a func that formats an element by its number, all to one width.
func (v Values) format() func(i int) string {
	switch {
	case v.Bools != nil:
		return func(i int) string {
			if v.Bools[i] {
				return " True"
			}
			return "False"
		}
	case v.Ints != nil:
		return right(len(v.Ints), func(i int) string { return strconv.FormatInt(v.Ints[i], 10) })
	case v.Uints != nil:
		return right(len(v.Uints), func(i int) string { return strconv.FormatUint(v.Uints[i], 10) })
	case v.Complex != nil:
		re, im := make([]float64, len(v.Complex)), make([]float64, len(v.Complex))
		for i, c := range v.Complex {
			re[i], im[i] = float64(real(c)), float64(imag(c))
		}
		reals, imags := newFloats(re, 32, false), newFloats(im, 32, true)
		return func(i int) string {
			text := imags.format(im[i])
			digits := strings.TrimRight(text, " ")
			return reals.format(re[i]) + digits + "j" + text[len(digits):]
		}
	}
	f := newFloats(v.Floats, v.Bits, false)
	return func(i int) string { return f.format(v.Floats[i]) }
}

// right returns a func that aligns n texts at the right.
func right(n int, text func(i int) string) func(i int) string {
	width := 0
	for i := range n {
		width = max(width, len(text(i)))
	}
	return func(i int) string { return fmt.Sprintf("%*s", width, text(i)) }
}

// scalar returns an array without dimensions as text.
func (v Values) scalar() string {
	switch {
	case v.Bools != nil:
		if v.Bools[0] {
			return "True"
		}
		return "False"
	case v.Complex != nil:
		c := v.Complex[0]
		re, im := scalarFloat(float64(real(c)), 32), scalarFloat(float64(imag(c)), 32)
		re, im = strings.TrimSuffix(re, ".0"), strings.TrimSuffix(im, ".0")
		if real(c) == 0 && !math.Signbit(float64(real(c))) {
			return im + "j"
		}
		if !strings.HasPrefix(im, "-") {
			im = "+" + im
		}
		return "(" + re + im + "j)"
	case v.Floats != nil:
		return scalarFloat(v.Floats[0], v.Bits)
	}
	return v.format()(0)
}

// scalarFloat returns a number as str of a numpy scalar does.
func scalarFloat(x float64, bits int) string {
	if text, ok := nonFinite(x, false); ok {
		return text
	}
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= positionalBelow(bits, 1e16)) {
		mantissa, exponent := scientific(x, bits, -1)
		return fmt.Sprintf("%se%s", strings.TrimSuffix(mantissa, "."), padExponent(exponent, 2))
	}
	text := positional(x, bits, -1)
	if strings.HasSuffix(text, ".") {
		text += "0"
	}
	return text
}

// floats formats numbers to one width, as FloatingFormat of numpy does.
type floats struct {
	bits        int
	sign        bool // show a plus
	exponents   bool
	digits      int // after the point; with exponents of every number, else at most
	left, right int // characters before and after the point
	exponent    int // digits of the exponent
}

func newFloats(values []float64, bits int, sign bool) *floats {
	f := &floats{bits: bits, sign: sign, digits: precision}
	var finite []float64
	least, most := math.Inf(1), 0.0
	negative := sign // infinity, or its sign is shown
	for _, x := range values {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			negative = negative || math.IsInf(x, -1)
			continue
		}
		finite = append(finite, x)
		if x != 0 {
			least, most = min(least, math.Abs(x)), max(most, math.Abs(x))
		}
	}
	f.exponents = most > 0 && (most >= positionalBelow(bits, 1e8) || least < exponentsBelow(bits) || quotient(most, least, bits) > 1000)
	if f.exponents {
		f.measureExponents(finite)
	} else {
		f.measure(finite)
	}
	if len(finite) < len(values) {
		room := 3 - (f.right + 1)
		f.left = max(f.left, room)
		if negative {
			f.left = max(f.left, room+1)
		}
	}
	return f
}

// positionalBelow returns the number from which on floats are shown with exponents, in
// numpy 2.4: narrow floats do not have the digits that would be shown.
func positionalBelow(bits int, of64 float64) float64 {
	switch bits {
	case 16:
		return 1e3
	case 32:
		return 1e6
	}
	return of64
}

// exponentsBelow returns 0.0001 as a float of that size.
func exponentsBelow(bits int) float64 {
	switch bits {
	case 16:
		return 0x1.a38p-14
	case 32:
		return float64(float32(0.0001))
	}
	return 0.0001
}

// quotient divides as numpy does, in the precision of the array.
func quotient(a, b float64, bits int) float64 {
	if bits == 64 {
		return a / b
	}
	return float64(float32(a) / float32(b))
}

func (f *floats) measure(values []float64) {
	for _, x := range values {
		whole, fraction, _ := strings.Cut(f.signed(positional(x, f.bits, precision)), ".")
		f.left, f.right = max(f.left, len(whole)), max(f.right, len(fraction))
	}
}

func (f *floats) measureExponents(values []float64) {
	f.digits = 0
	for _, x := range values {
		mantissa, exponent := scientific(x, f.bits, precision)
		whole, fraction, _ := strings.Cut(f.signed(mantissa), ".")
		f.left, f.digits = max(f.left, len(whole)), max(f.digits, len(fraction))
		f.exponent = max(f.exponent, len(padExponent(exponent, 2))-1)
	}
	f.right = f.exponent + 2 + f.digits
}

// signed puts a plus before a number that has no sign, if that is shown.
func (f *floats) signed(text string) string {
	if f.sign && !strings.HasPrefix(text, "-") {
		return "+" + text
	}
	return text
}

func (f *floats) format(x float64) string {
	if text, ok := nonFinite(x, f.sign); ok {
		return fmt.Sprintf("%*s", f.left+f.right+1, text)
	}
	if f.exponents {
		mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(x, 'e', f.digits, 64), "e")
		whole, fraction, _ := strings.Cut(f.signed(mantissa), ".")
		n, _ := strconv.Atoi(exponent)
		return fmt.Sprintf("%*s.%se%s", f.left, whole, fraction, padExponent(n, f.exponent))
	}
	whole, fraction, _ := strings.Cut(f.signed(positional(x, f.bits, f.digits)), ".")
	return fmt.Sprintf("%*s.%-*s", f.left, whole, f.right, fraction)
}

// nonFinite returns the text of NaN and infinity.
func nonFinite(x float64, sign bool) (string, bool) {
	plus := ""
	if sign {
		plus = "+"
	}
	switch {
	case math.IsNaN(x):
		return plus + "nan", true
	case math.IsInf(x, 1):
		return plus + "inf", true
	case math.IsInf(x, -1):
		return "-inf", true
	}
	return "", false
}

// positional returns the shortest text of x that has a point, rounded to at most
// digits after it unless that is -1.
func positional(x float64, bits, digits int) string {
	text := shortest(x, bits, 'f')
	whole, fraction, _ := strings.Cut(text, ".")
	if digits >= 0 && len(fraction) > digits {
		whole, fraction, _ = strings.Cut(strconv.FormatFloat(x, 'f', digits, 64), ".")
		fraction = strings.TrimRight(fraction, "0")
	}
	return whole + "." + fraction
}

// scientific returns the shortest mantissa of x, with a point, and the exponent.
func scientific(x float64, bits, digits int) (mantissa string, exponent int) {
	text := shortest(x, bits, 'e')
	mantissa, rest, _ := strings.Cut(text, "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	if digits >= 0 && len(fraction) > digits {
		mantissa, rest, _ = strings.Cut(strconv.FormatFloat(x, 'e', digits, 64), "e")
		whole, fraction, _ = strings.Cut(mantissa, ".")
		fraction = strings.TrimRight(fraction, "0")
	}
	exponent, _ = strconv.Atoi(rest)
	return whole + "." + fraction, exponent
}

// padExponent returns the sign and at least that many digits.
func padExponent(exponent, digits int) string { return fmt.Sprintf("%+0*d", digits+1, exponent) }

// shortest returns the shortest text that only x of all floats of that size reads as.
func shortest(x float64, bits int, format byte) string {
	if bits != 16 {
		return strconv.FormatFloat(x, format, -1, bits)
	}
	low, high := neighbors16(x)
	for digits := 0; digits < 5; digits++ {
		text := strconv.FormatFloat(x, 'e', digits, 64)
		y, _ := strconv.ParseFloat(text, 64)
		if low < y && y < high {
			return strconv.FormatFloat(y, format, -1, 64)
		}
	}
	return strconv.FormatFloat(x, format, -1, 64)
}

// neighbors16 returns the interval of numbers that round to the float16 x.
func neighbors16(x float64) (low, high float64) {
	if x == 0 {
		return -0x1p-25, 0x1p-25
	}
	_, exponent := math.Frexp(x)
	ulp := math.Ldexp(1, max(exponent-11, -24))
	below := ulp
	if f, _ := math.Frexp(math.Abs(x)); f == 0.5 && exponent-11 > -24 {
		below = ulp / 2 // the floats below a power of two are denser
	}
	if x < 0 {
		return x - ulp/2, x + below/2
	}
	return x - below/2, x + ulp/2
}
