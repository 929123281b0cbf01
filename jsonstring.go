package safetensors

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

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

// ones times a byte is that byte eight times.
const ones = 0x0101010101010101

// plainLength returns how many bytes of b come before the first that does not
// stand for itself in a string: a quote, a backslash or a control character.
func plainLength(b []byte) int {
	const highs = 0x80 * ones
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

// hex4 reads \u and the four hexadecimal digits behind it.
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
