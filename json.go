package safetensors

import (
	"fmt"
	"unicode/utf8"
)

// A scanner reads the JSON of a header or of an index. It knows the grammar of
// RFC 8259 and the limits of the reference's JSON parser, and nothing of tensors.
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
