package safetensors

import "math"

// integer reads a number between 0 and max, written as digits only and without
// leading zeros: what the reference reads into its usize.
func (s *scanner) integer(what string, max int64) (int64, error) {
	s.space()
	start := s.pos
	n := uint64(0)
	for s.pos < len(s.text) {
		d := uint64(s.text[s.pos]) - '0'
		if d > 9 {
			break
		}
		if n > (uint64(max)-d)/10 {
			return 0, s.fail(start, "%s is above %d", what, max)
		}
		n = n*10 + d
		s.pos++
	}
	switch {
	case s.pos == start:
		return 0, s.failHere(what + ", an integer of 0 or more,")
	case s.text[start] == '0' && s.pos-start > 1:
		return 0, s.fail(start, "%s has a leading zero", what)
	}
	switch s.peek() {
	case '.', 'e', 'E':
		return 0, s.fail(start, "%s is not written as an integer", what)
	}
	return int64(n), nil
}

// skipIntegers reads over the elements of an array that are plain integers with a
// comma behind, as fast as they may be many; skip decides on all others.
func (s *scanner) skipIntegers() {
	b := s.text[s.pos:]
	for {
		n := 0
		for n < len(b) && b[n]-'0' <= 9 {
			n++
		}
		if n == 0 || n > 18 || n > 1 && b[0] == '0' || n == len(b) || b[n] != ',' {
			break
		}
		b = b[n+1:]
	}
	s.pos = len(s.text) - len(b)
}

// skipNumber reads over a number and checks that it is finite as a float64. It
// arrives at that the way the reference does: the digits that fit an integer
// of 64 bits, then a power of ten for the rest.
func (s *scanner) skipNumber() error {
	start := s.pos
	if s.text[s.pos] == '-' {
		s.pos++
	}
	var digits uint64 // those that fit
	exponent := 0     // of ten, for those that do not, the fraction and the exponent
	whole := s.pos
	exponent += s.digits(&digits)
	if n := s.pos - whole; n == 0 || n > 1 && s.text[whole] == '0' {
		return s.fail(start, "invalid number")
	}
	if s.peek() == '.' {
		s.pos++
		fraction := s.pos
		dropped := s.digits(&digits)
		if s.pos == fraction {
			return s.fail(start, "invalid number: no digits behind the point")
		}
		exponent -= s.pos - fraction - dropped
	}
	if s.peek()|0x20 == 'e' {
		e, ok := s.exponent()
		if !ok {
			return s.fail(start, "invalid number: no digits in the exponent")
		}
		exponent += e
	}
	if overflows(digits, exponent) {
		return s.fail(start, "number beyond the range of a 64-bit float")
	}
	return nil
}

// digits appends digits to n while they fit and returns how many did not.
func (s *scanner) digits(n *uint64) (dropped int) {
	for s.pos < len(s.text) {
		d := uint64(s.text[s.pos]) - '0'
		if d > 9 {
			break
		}
		if dropped > 0 || *n > (math.MaxUint64-d)/10 {
			dropped++
		} else {
			*n = *n*10 + d
		}
		s.pos++
	}
	return dropped
}

// exponent reads the e of a number and what follows. It stays in the range of
// an int32, which is far beyond that of a float64.
func (s *scanner) exponent() (e int, ok bool) {
	s.pos++
	sign := 1
	switch s.peek() {
	case '-':
		sign = -1
		s.pos++
	case '+':
		s.pos++
	}
	start := s.pos
	for s.pos < len(s.text) {
		d := int(s.text[s.pos]) - '0'
		if d < 0 || d > 9 {
			break
		}
		e = min(e*10+d, math.MaxInt32/16)
		s.pos++
	}
	return sign * e, s.pos > start
}

// overflows reports whether digits × 10^exponent is beyond the float64s.
func overflows(digits uint64, exponent int) bool {
	const base = 288 // 2^64 × 10^288 does not overflow
	powers := [...]float64{
		1e288, 1e289, 1e290, 1e291, 1e292, 1e293, 1e294, 1e295, 1e296, 1e297, 1e298,
		1e299, 1e300, 1e301, 1e302, 1e303, 1e304, 1e305, 1e306, 1e307, 1e308,
	}
	switch {
	case exponent <= base || digits == 0:
		return false
	case exponent-base >= len(powers):
		return true
	}
	return math.IsInf(float64(digits)*powers[exponent-base], 0)
}
