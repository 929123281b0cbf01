package jsonscan

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// String reads a string and returns where its value is in the text. Escapes are
// decoded in place: none is shorter than what it stands for. expected names the
// string in an error.
func (s *Scanner) String(expected string) (Span, error) {
	if !s.Byte('"') {
		return Span{}, s.FailHere(expected)
	}
	start := s.Pos
	end := start // of the value so far; from here to Pos the text is dead
	for {
		from := s.Pos
		s.Pos += PlainLength(s.Text[s.Pos:])
		if end != from {
			copy(s.Text[end:], s.Text[from:s.Pos])
		}
		end += s.Pos - from
		if s.Pos == len(s.Text) {
			return Span{}, s.Fail(start-1, "the string that starts here does not end")
		}
		switch c := s.Text[s.Pos]; {
		case c == '"':
			s.Pos++
			return Span{uint32(start), uint32(end - start)}, nil
		case c != '\\':
			return Span{}, s.Fail(s.Pos, "control character %q in a string", c)
		}
		r, err := s.escape()
		if err != nil {
			return Span{}, err
		}
		end += utf8.EncodeRune(s.Text[end:], r)
	}
}

// ones times a byte is that byte eight times.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// PlainLength returns the number of bytes in b before the first one that does not
// stand for itself in a string: a quote, a backslash or a control character.
func PlainLength(b []byte) int {
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

// letters are those after a backslash, escaped what each stands for.
const (
	letters = `"\/bfnrt`
	escaped = "\"\\/\b\f\n\r\t"
)

// escape reads one escape, or the two that make a surrogate pair.
func (s *Scanner) escape() (rune, error) {
	if s.Pos+1 == len(s.Text) {
		return 0, s.Fail(s.Pos, "the text ends within an escape")
	}
	c := s.Text[s.Pos+1]
	if c == 'u' {
		return s.unicodeEscape()
	}
	i := strings.IndexByte(letters, c)
	if i < 0 {
		return 0, s.Fail(s.Pos, "invalid escape in a string")
	}
	s.Pos += 2
	return rune(escaped[i]), nil
}

func (s *Scanner) unicodeEscape() (rune, error) {
	at := s.Pos
	high, ok := s.hex4()
	if !ok {
		return 0, s.Fail(at, "\\u is not followed by four hexadecimal digits")
	}
	switch {
	case high < 0xd800 || high > 0xdfff:
		return high, nil
	case high < 0xdc00:
		if low, ok := s.hex4(); ok && 0xdc00 <= low && low <= 0xdfff {
			return 0x10000 + (high-0xd800)<<10 + (low - 0xdc00), nil
		}
	}
	return 0, s.Fail(at, "lone surrogate \\u%04x in a string", high)
}

// hex4 reads \u and the four hexadecimal digits after it.
func (s *Scanner) hex4() (r rune, ok bool) {
	if len(s.Text)-s.Pos < 6 || s.Text[s.Pos] != '\\' || s.Text[s.Pos+1] != 'u' {
		return 0, false
	}
	var b [2]byte
	if _, err := hex.Decode(b[:], s.Text[s.Pos+2:s.Pos+6]); err != nil {
		return 0, false
	}
	s.Pos += 6
	return rune(binary.BigEndian.Uint16(b[:])), true
}
