package safetensors

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf8"
)

// A scanner reads the JSON of a header or of an index. It knows the grammar of RFC 8259 and
// the limits of the reference's JSON parser, and nothing of tensors.
//
// Methods that return a bool report whether what they look for stands at pos;
// if so they move behind it. Methods that return an error insist on it.
type scanner struct {
	text   []byte // valid UTF-8, owned by the scanner
	base   int64  // offset of text in the file
	pos    int    // 0 ≤ pos ≤ len(text)
	tensor span   // the tensor whose entry is being read, for errors
}

// fail returns an error about the byte at pos.
func (s *scanner) fail(pos int, format string, args ...any) error {
	name := string(s.text[s.tensor.off:][:s.tensor.len])
	return &FormatError{Offset: s.base + int64(pos), Tensor: name, Reason: fmt.Sprintf(format, args...)}
}

// failHere returns an error that names what was expected at pos and what is
// there instead.
func (s *scanner) failHere(expected string) error {
	if s.pos >= len(s.text) {
		return s.fail(s.pos, "the text ends where %s is expected", expected)
	}
	r, _ := utf8.DecodeRune(s.text[s.pos:])
	return s.fail(s.pos, "%q where %s is expected", r, expected)
}

// peek returns the byte at pos, or 0, which no token begins with, at the end.
func (s *scanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *scanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

// byte skips white space and then c.
func (s *scanner) byte(c byte) bool {
	s.space()
	if s.peek() != c {
		return false
	}
	s.pos++
	return true
}

func (s *scanner) expect(c byte) error {
	if !s.byte(c) {
		return s.failHere("'" + string(rune(c)) + "'")
	}
	return nil
}

// more skips what stands behind an element of an object or array: a comma, and
// then there is more, or the closing bracket.
func (s *scanner) more(closing byte) (bool, error) {
	if s.byte(',') {
		return true, nil
	}
	if s.byte(closing) {
		return false, nil
	}
	return false, s.failHere("',' or '" + string(rune(closing)) + "'")
}

// object reads an object, and with member the value of each key.
func (s *scanner) object(expected string, member func(key span) error) error {
	if !s.byte('{') {
		return s.failHere(expected)
	}
	for more := !s.byte('}'); more; {
		key, err := s.key()
		if err == nil {
			err = member(key)
		}
		if err == nil {
			more, err = s.more('}')
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// literal skips null, true or false.
func (s *scanner) literal(word string) bool {
	s.space()
	return s.token(word)
}

// key reads the name of an object's member and the colon behind it.
func (s *scanner) key() (span, error) {
	name, err := s.str("a string")
	if err != nil {
		return span{}, err
	}
	return name, s.expect(':')
}

// str reads a string and returns where its value stands in the text. Escapes
// are decoded in place: no escape is shorter than what it stands for.
func (s *scanner) str(expected string) (span, error) {
	if !s.byte('"') {
		return span{}, s.failHere(expected)
	}
	start := s.pos
	end := start // of the value so far; behind it, up to pos, is dead text
	for {
		from := s.pos
		s.plain()
		if end != from {
			copy(s.text[end:], s.text[from:s.pos])
		}
		end += s.pos - from
		if s.pos == len(s.text) {
			return span{}, s.fail(start-1, "the string that begins here does not end")
		}
		switch c := s.text[s.pos]; {
		case c == '"':
			s.pos++
			return span{uint32(start), uint32(end - start)}, nil
		case c != '\\':
			return span{}, s.fail(s.pos, "control character %q in a string", c)
		}
		r, err := s.escape()
		if err != nil {
			return span{}, err
		}
		end += utf8.EncodeRune(s.text[end:], r)
	}
}

// plain moves to the next byte of a string that does not stand for itself.
func (s *scanner) plain() { s.pos += plainLength(s.text[s.pos:]) }

// plainLength returns how many bytes of b come before the first that does not
// stand for itself in a string: a quote, a backslash or a control character.
func plainLength(b []byte) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x80 * ones
	)
	n := 0
	for ; len(b)-n >= 8; n += 8 {
		// In each of the three terms the lowest high bit that is set marks a
		// byte that is below 0x20, a quote, or a backslash; higher ones may be
		// false, carried on from it.
		w := binary.LittleEndian.Uint64(b[n:])
		quote, slash := w^('"'*ones), w^('\\'*ones)
		found := ((w - ' '*ones) &^ w) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
		if found &= highs; found != 0 {
			return n + bits.TrailingZeros64(found)/8
		}
	}
	for n < len(b) && b[n] >= ' ' && b[n] != '"' && b[n] != '\\' {
		n++
	}
	return n
}

// escape reads one escape, or the two that make a surrogate pair.
func (s *scanner) escape() (rune, error) {
	if s.pos+1 == len(s.text) {
		return 0, s.fail(s.pos, "the text ends within an escape")
	}
	var r rune
	switch c := s.text[s.pos+1]; c {
	case '"', '\\', '/':
		r = rune(c)
	case 'b':
		r = '\b'
	case 'f':
		r = '\f'
	case 'n':
		r = '\n'
	case 'r':
		r = '\r'
	case 't':
		r = '\t'
	case 'u':
		return s.unicodeEscape()
	default:
		return 0, s.fail(s.pos, "invalid escape in a string")
	}
	s.pos += 2
	return r, nil
}

func (s *scanner) unicodeEscape() (rune, error) {
	at := s.pos
	high, ok := s.hex4()
	if !ok {
		return 0, s.fail(at, "\\u is not followed by four hexadecimal digits")
	}
	switch {
	case high < 0xd800 || high > 0xdfff:
		return high, nil
	case high < 0xdc00:
		if low, ok := s.hex4(); ok && 0xdc00 <= low && low <= 0xdfff {
			return 0x10000 + (high-0xd800)<<10 + (low - 0xdc00), nil
		}
	}
	return 0, s.fail(at, "lone surrogate \\u%04x in a string", high)
}

// hex4 reads one \uXXXX.
func (s *scanner) hex4() (r rune, ok bool) {
	if len(s.text)-s.pos < 6 || s.text[s.pos] != '\\' || s.text[s.pos+1] != 'u' {
		return 0, false
	}
	for _, c := range s.text[s.pos+2 : s.pos+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	s.pos += 6
	return r, true
}

// token skips s if the text goes on with exactly that.
func (s *scanner) token(t string) bool {
	if len(s.text)-s.pos < len(t) || string(s.text[s.pos:][:len(t)]) != t {
		return false
	}
	s.pos += len(t)
	return true
}

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

// skip reads over any value; depth counts the objects and arrays it is in.
func (s *scanner) skip(depth int) error {
	s.space()
	switch c := s.peek(); {
	case c == '"':
		_, err := s.str("a string")
		return err
	case c == '{' || c == '[':
		return s.skipNested(c, depth+1)
	case c == '-' || '0' <= c && c <= '9':
		return s.skipNumber()
	case s.literal("null") || s.literal("true") || s.literal("false"):
		return nil
	}
	return s.failHere("a value")
}

func (s *scanner) skipNested(opening byte, depth int) error {
	if depth > maxDepth {
		return s.fail(s.pos, "more than %d objects and arrays within each other", maxDepth)
	}
	s.pos++
	closing := opening + 2 // '{' and '}', '[' and ']'
	if s.byte(closing) {
		return nil
	}
	for more := true; more; {
		if opening == '[' {
			s.skipIntegers()
		} else if _, err := s.key(); err != nil {
			return err
		}
		err := s.skip(depth)
		if err == nil {
			more, err = s.more(closing)
		}
		if err != nil {
			return err
		}
	}
	return nil
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
