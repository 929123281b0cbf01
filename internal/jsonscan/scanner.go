// Package jsonscan reads JSON strictly and in one pass, and writes JSON strings. It follows the
// grammar of RFC 8259 and the limits of serde_json, the JSON parser of the reference
// implementation. It does not depend on the meaning of the text.
package jsonscan

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// MaxDepth is the deepest allowed nesting of objects and arrays, the outermost included.
// serde_json refuses a depth of 128.
const MaxDepth = 127

// A Scanner reads a text, starting at Pos. It owns the text, because it decodes strings in place.
//
// A method that returns a bool reports whether the token that it looks for is at Pos, and moves
// past the token if so. A method that returns an error requires the token; its error is an *Error.
type Scanner struct {
	Text []byte // valid UTF-8, see CheckUTF8
	Pos  int    // 0 ≤ Pos ≤ len(Text)
}

// A Span is a part of the text.
type Span struct{ Off, Len uint32 }

// An Error reports that the text breaks a rule at byte Pos.
type Error struct {
	Pos    int
	Reason string
}

func (e *Error) Error() string { return fmt.Sprintf("%s (at byte %d)", e.Reason, e.Pos) }

// Bytes returns the part of the text in a Span.
func (s *Scanner) Bytes(p Span) []byte { return s.Text[p.Off:][:p.Len] }

// Fail returns an error about the byte at pos.
func (s *Scanner) Fail(pos int, format string, args ...any) error {
	return &Error{pos, fmt.Sprintf(format, args...)}
}

// FailHere returns an error that states what was expected at Pos and what was
// found there.
func (s *Scanner) FailHere(expected string) error {
	if s.Pos >= len(s.Text) {
		return s.Fail(s.Pos, "expected %s, found the end of the text", expected)
	}
	r, _ := utf8.DecodeRune(s.Text[s.Pos:])
	return s.Fail(s.Pos, "expected %s, found %q", expected, r)
}

// CheckUTF8 checks that the whole text is valid UTF-8. The argument what names the text in the
// error.
func (s *Scanner) CheckUTF8(what string) error {
	if utf8.Valid(s.Text) {
		return nil
	}
	n := 0
	for n < len(s.Text) {
		r, size := utf8.DecodeRune(s.Text[n:])
		if r == utf8.RuneError && size == 1 {
			break
		}
		n += size
	}
	return s.Fail(n, "%s is not valid UTF-8", what)
}

// Reserve returns list with room for n more elements. When the list must grow, Reserve extrapolates
// its final length from the text read so far. The remaining text limits that length: each element
// takes at least as many bytes as the argument least, which includes its comma. For a long list it
// counts the commas instead, because growing a list that is nearly complete would take twice its
// memory.
func Reserve[E any](s *Scanner, list []E, n, least int) []E {
	const (
		sample = 1 << 10 // number of bytes that must have been read before the length of the list is extrapolated
		large  = 1 << 18 // number of elements from which counting commas pays
	)
	if cap(list)-len(list) >= n {
		return list
	}
	rest := s.Text[s.Pos:]
	more := max(32, len(list))
	if s.Pos >= sample {
		more = max(more, int(float64(len(list))*float64(len(rest))/float64(s.Pos)*1.05))
	}
	most := len(rest) / least
	if more = min(more, most); more >= large {
		commas := bytes.Count(rest, []byte{','}) + 1
		if commas < more || most/2 < commas && commas <= most { // with so many commas, elements of this list are likely to make up most of the rest
			more = commas
		}
	}
	grown := make([]E, len(list), len(list)+n+more)
	copy(grown, list)
	return grown
}

// peek returns the byte at Pos. At the end of the text it returns 0, a byte that starts no token.
func (s *Scanner) peek() byte {
	if s.Pos < len(s.Text) {
		return s.Text[s.Pos]
	}
	return 0
}

// Space skips white space.
func (s *Scanner) Space() {
	for s.Pos < len(s.Text) {
		switch s.Text[s.Pos] {
		case ' ', '\t', '\n', '\r':
			s.Pos++
		default:
			return
		}
	}
}

// Byte skips white space. If c comes next, it skips c and returns true.
func (s *Scanner) Byte(c byte) bool {
	s.Space()
	if s.peek() != c {
		return false
	}
	s.Pos++
	return true
}

// Expect is like Byte, but returns an error if c does not come next.
func (s *Scanner) Expect(c byte) error {
	if !s.Byte(c) {
		return s.FailHere("'" + string(rune(c)) + "'")
	}
	return nil
}

// End skips white space and checks that nothing follows. The argument what names the text in the
// error.
func (s *Scanner) End(what string) error {
	if s.Space(); s.Pos < len(s.Text) {
		return s.FailHere("the end of " + what)
	}
	return nil
}

// More skips the comma or the closing bracket after an element of an object or array. It reports
// whether it was a comma, after which another element must follow.
func (s *Scanner) More(closing byte) (bool, error) {
	if s.Byte(',') {
		return true, nil
	}
	if s.Byte(closing) {
		return false, nil
	}
	return false, s.FailHere("',' or '" + string(rune(closing)) + "'")
}

// Object reads an object. After each key it calls member, which must read the value. The argument
// expected describes the object in the error for a text where none starts.
func (s *Scanner) Object(expected string, member func(key Span) error) error {
	if !s.Byte('{') {
		return s.FailHere(expected)
	}
	for more := !s.Byte('}'); more; {
		key, err := s.String("a string")
		if err == nil {
			err = s.Expect(':')
		}
		if err == nil {
			err = member(key)
		}
		if err == nil {
			more, err = s.More('}')
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Literal skips white space. If the word comes next, it skips the word and returns true. The word
// is null, true or false.
func (s *Scanner) Literal(word string) bool {
	s.Space()
	if len(s.Text)-s.Pos < len(word) || string(s.Text[s.Pos:][:len(word)]) != word {
		return false
	}
	s.Pos += len(word)
	return true
}

// Skip skips any value. depth is the number of objects and arrays that contain it.
func (s *Scanner) Skip(depth int) error {
	s.Space()
	switch c := s.peek(); {
	case c == '"':
		_, err := s.String("a string")
		return err
	case c == '{' || c == '[':
		return s.skipNested(depth + 1)
	case c == '-' || '0' <= c && c <= '9':
		return s.skipNumber()
	case s.Literal("null") || s.Literal("true") || s.Literal("false"):
		return nil
	}
	return s.FailHere("a value")
}

// skipNested skips an object or an array. depth includes it.
func (s *Scanner) skipNested(depth int) error {
	if depth > MaxDepth {
		return s.Fail(s.Pos, "objects and arrays are nested deeper than %d levels", MaxDepth)
	}
	if s.peek() == '{' {
		return s.Object("", func(Span) error { return s.Skip(depth) })
	}
	s.Pos++
	for more := !s.Byte(']'); more; {
		s.skipIntegers()
		err := s.Skip(depth)
		if err == nil {
			more, err = s.More(']')
		}
		if err != nil {
			return err
		}
	}
	return nil
}
