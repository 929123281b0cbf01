// Package jsonscan reads JSON strictly and in one pass, and writes its strings.
// It knows the grammar of RFC 8259 and the limits of serde_json, the JSON parser
// of the reference implementation, and nothing of tensors.
package jsonscan

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// MaxDepth limits the nesting of objects and arrays, the outermost included.
// serde_json stops at 128.
const MaxDepth = 127

// A Scanner reads a text from Pos on. It owns the text and decodes strings in
// place.
//
// Methods that return a bool report whether they found what they look for at
// Pos; if so they move past it. Methods that return an error insist on it, and
// their errors are *Error.
type Scanner struct {
	Text []byte // valid UTF-8, see CheckUTF8
	Pos  int    // 0 ≤ Pos ≤ len(Text)
}

// A Span is a part of the text.
type Span struct{ Off, Len uint32 }

// An Error says which rule the text breaks at Pos.
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

// FailHere returns an error that names what was expected at Pos and what was
// found.
func (s *Scanner) FailHere(expected string) error {
	if s.Pos >= len(s.Text) {
		return s.Fail(s.Pos, "expected %s, found the end of the text", expected)
	}
	r, _ := utf8.DecodeRune(s.Text[s.Pos:])
	return s.Fail(s.Pos, "expected %s, found %q", expected, r)
}

// CheckUTF8 checks that the whole text is valid UTF-8. what names it in the
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

// Reserve returns list with room for n more elements. When it must grow, it
// extrapolates from the text read so far, capped by how many elements of at least
// least bytes, a comma after each, the rest can hold. Memory is exact where it is
// large: a list that is copied when it is nearly complete costs twice its size.
func Reserve[E any](s *Scanner, list []E, n, least int) []E {
	const (
		sample = 1 << 10 // bytes that tell something about the rest
		large  = 1 << 18 // elements that are worth counting commas for
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
		if commas < more || most/2 < commas && commas <= most { // most of the rest are such elements
			more = commas
		}
	}
	grown := make([]E, len(list), len(list)+n+more)
	copy(grown, list)
	return grown
}

// peek returns the byte at Pos. At the end it is 0, which starts no token.
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

// Byte skips white space and then c.
func (s *Scanner) Byte(c byte) bool {
	s.Space()
	if s.peek() != c {
		return false
	}
	s.Pos++
	return true
}

// Expect is Byte, and an error if c is not there.
func (s *Scanner) Expect(c byte) error {
	if !s.Byte(c) {
		return s.FailHere("'" + string(rune(c)) + "'")
	}
	return nil
}

// End skips white space and checks that nothing follows. what names the text in
// the error.
func (s *Scanner) End(what string) error {
	if s.Space(); s.Pos < len(s.Text) {
		return s.FailHere("the end of " + what)
	}
	return nil
}

// More skips what follows an element of an object or array: a comma, in which
// case there is more, or the closing bracket.
func (s *Scanner) More(closing byte) (bool, error) {
	if s.Byte(',') {
		return true, nil
	}
	if s.Byte(closing) {
		return false, nil
	}
	return false, s.FailHere("',' or '" + string(rune(closing)) + "'")
}

// Object reads an object. It calls member after each key to read the value.
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

// Literal skips null, true or false.
func (s *Scanner) Literal(word string) bool {
	s.Space()
	if len(s.Text)-s.Pos < len(word) || string(s.Text[s.Pos:][:len(word)]) != word {
		return false
	}
	s.Pos += len(word)
	return true
}

// Skip reads over any value. depth counts the objects and arrays it is in.
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
