package jsonscan

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// AppendString appends s as a JSON string with the escapes of the reference: a
// quote, a backslash and control characters are escaped, everything else is raw.
// s is valid UTF-8.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	n := len(b)
	b = append(b, s...)
	plain := PlainLength(b[n:])
	b = b[:n+plain] // nearly always all of it
	for ; plain < len(s); plain++ {
		if c := s[plain]; c < ' ' || c == '"' || c == '\\' {
			b = appendEscape(b, c)
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// AppendPlain appends s as a JSON string if it is ASCII without anything to escape, and
// has 8 bytes or more, as nearly all names do. If not, it returns b as it was.
func AppendPlain(b []byte, s string) (_ []byte, ok bool) {
	if len(s) < 8 {
		return b, false
	}
	start := len(b)
	b = append(b, '"')
	b = append(b, s...)
	found := uint64(0)
	text := b[start+1:]
	for ; len(text) > 8; text = text[8:] {
		found |= special(binary.LittleEndian.Uint64(text))
	}
	found |= special(binary.LittleEndian.Uint64(b[len(b)-8:]))
	if found&highs != 0 {
		return b[:start], false
	}
	return append(b, '"'), true
}

// special returns a word in which a high bit is set if a byte of w is not ASCII or
// does not stand for itself in a string.
func special(w uint64) uint64 {
	quote, slash := w^('"'*ones), w^('\\'*ones)
	return w | (w - ' '*ones) | (quote - ones) | (slash - ones)
}

func appendEscape(b []byte, c byte) []byte {
	if i := strings.IndexByte(escaped, c); i >= 0 {
		return append(b, '\\', letters[i])
	}
	return fmt.Appendf(b, "\\u%04x", c)
}

// AppendASCII is AppendString with everything but ASCII escaped, too, as Python's
// json.dumps does.
func AppendASCII(b []byte, s string) []byte {
	for _, r := range string(AppendString(nil, s)) {
		if r < 0x7f { // Python escapes DEL, too
			b = append(b, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, "\\u%04x", unit)
		}
	}
	return b
}
