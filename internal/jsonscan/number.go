package jsonscan

import "math"

// Integer reads a number from 0 to max that is written as digits only, without leading zeros, as
// the reference reads into its usize. The argument what names the number in errors.
func (s *Scanner) Integer(what string, max int64) (int64, error) {
	s.Space()
	start := s.Pos
	n, dropped := s.digits(0)
	switch {
	case s.Pos == start:
		return 0, s.FailHere(what + ", an integer of 0 or more")
	case dropped > 0 || n > uint64(max):
		return 0, s.Fail(start, "%s is above %d", what, max)
	case s.Text[start] == '0' && s.Pos-start > 1:
		return 0, s.Fail(start, "%s has a leading zero", what)
	}
	switch s.peek() {
	case '.', 'e', 'E':
		return 0, s.Fail(start, "%s is not written as an integer", what)
	}
	return int64(n), nil
}

// MaxDigits is the largest number of decimal digits that always fit an int64.
const MaxDigits = 18

// Decimal reads a decimal integer without a sign at the start of b, and returns it with its number
// of digits. It returns 0 digits for a spelling that needs Integer to judge it: white space,
// leading zeros, or more than MaxDigits digits.
func Decimal(b []byte) (n int64, digits int) {
	for digits < len(b) {
		d := b[digits] - '0'
		if d > 9 {
			break
		}
		// n = n*10 + d in two instructions: n*5, then twice that and d. The compiler makes slower ones of n*10 + d.
		n += n << 2
		n = int64(d) + n<<1
		digits++
	}
	if digits > MaxDigits || digits > 1 && b[0] == '0' {
		return 0, 0
	}
	return n, digits
}

// skipIntegers skips the elements of an array that are plain integers followed by a
// comma, since there may be millions of them. Skip handles all other elements.
func (s *Scanner) skipIntegers() {
	b := s.Text[s.Pos:]
	for {
		_, n := Decimal(b)
		if n == 0 || n == len(b) || b[n] != ',' {
			break
		}
		b = b[n+1:]
	}
	s.Pos = len(s.Text) - len(b)
}

// skipNumber skips a number and checks that it is finite as a float64. It decides as the reference
// does: by the digits that fit an integer of 64 bits, times a power of ten for the rest.
func (s *Scanner) skipNumber() error {
	start := s.Pos
	if s.Text[s.Pos] == '-' {
		s.Pos++
	}
	whole := s.Pos
	digits, dropped := s.digits(0)
	exponent := dropped // power of ten: number of digits that do not fit, minus the digits of the fraction, plus the exponent
	if n := s.Pos - whole; n == 0 || n > 1 && s.Text[whole] == '0' {
		return s.Fail(start, "invalid number")
	}
	if s.peek() == '.' {
		s.Pos++
		fraction := s.Pos
		digits, dropped = s.digits(digits)
		if s.Pos == fraction {
			return s.Fail(start, "invalid number: no digits after the point")
		}
		exponent -= s.Pos - fraction - dropped
	}
	if s.peek()|0x20 == 'e' {
		e, ok := s.exponent()
		if !ok {
			return s.Fail(start, "invalid number: no digits in the exponent")
		}
		exponent += e
	}
	if overflows(digits, exponent) {
		return s.Fail(start, "number exceeds the range of a 64-bit float")
	}
	return nil
}

// digits appends digits to n as long as they fit, and returns the number of digits that do not.
func (s *Scanner) digits(n uint64) (_ uint64, dropped int) {
	for s.Pos < len(s.Text) {
		d := uint64(s.Text[s.Pos]) - '0'
		if d > 9 {
			break
		}
		if dropped > 0 || n > (math.MaxUint64-d)/10 {
			dropped++
		} else {
			n = n*10 + d
		}
		s.Pos++
	}
	return n, dropped
}

// exponent reads the exponent of a number, starting at the letter e. It caps the value within the
// range of an int32, which is far beyond the exponents of a float64.
func (s *Scanner) exponent() (e int, ok bool) {
	s.Pos++
	sign := 1
	switch s.peek() {
	case '-':
		sign = -1
		s.Pos++
	case '+':
		s.Pos++
	}
	start := s.Pos
	n, _ := s.digits(0) // if digits are dropped, n is far above the cap
	return sign * int(min(n, math.MaxInt32/16)), s.Pos > start
}

// overflows reports whether digits × 10^exponent exceeds the largest float64. TestOverflows proves
// that math.Pow10 gives the same verdict as a correctly rounded power.
func overflows(digits uint64, exponent int) bool {
	return math.IsInf(float64(digits)*math.Pow10(exponent), 0) // 0 × infinity is a NaN, for which IsInf returns false
}
