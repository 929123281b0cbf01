package jsonscan

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
	"strings"
	"unicode/utf8"
)

// String reads a string and returns the position of its value in the text. Escapes are decoded in
// place, because no escape is shorter than the character that it stands for. The argument expected
// describes the string in the error for a text where none starts.
func (s *Scanner) String(expected string) (Span, error) {
	if !s.Byte('"') {
		return Span{}, s.FailHere(expected)
	}
	start := s.Pos
	end := start // end of the value so far; the text between end and Pos is no longer needed
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

// ones has a 1 in each byte of a word, so that ones times a byte repeats that byte eight times.
// highs has the high bit of each byte set.
const (
	ones  = 0x0101010101010101
	highs = 0x80 * ones
)

// PlainLength returns the number of bytes in b before the first one that needs an escape
// in a string: a quote, a backslash or a control character.
func PlainLength(b []byte) int {
	n, found := plainBlocks(b)
	if found {
		return n
	}
	for ; len(b)-n >= 8; n += 8 {
		// The three terms find bytes below 0x20, quotes and backslashes. In each term the lowest
		// high bit that is set marks such a byte. Higher bits may be set by a carry from there.
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

// letters are the letters that may follow a backslash. escaped are the characters that these
// letters stand for, in the same order.
const (
	letters = `"\/bfnrt`
	escaped = "\"\\/\b\f\n\r\t"
)

// escape reads one escape, or two escapes that form a surrogate pair.
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

// unicodeEscape reads \u and its four digits, or two such escapes that form a surrogate pair.
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
