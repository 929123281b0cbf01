package jsonscan

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// AppendString appends s as a JSON string with the escapes of the reference: a
// quote, a backslash and control characters are escaped, everything else is raw.
// s must be valid UTF-8.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	n := len(b)
	b = append(b, s...)
	plain := PlainLength(b[n:])
	b = b[:n+plain] // nearly always all of s
	for ; plain < len(s); plain++ {
		if c := s[plain]; c < ' ' || c == '"' || c == '\\' {
			b = appendEscape(b, c)
		} else {
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// AppendPlain appends s as a JSON string if s has at least 8 bytes and consists of ASCII characters
// that need no escape, like nearly all names of tensors. Otherwise it returns b unchanged, and
// false.
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

// special returns a word with a high bit set for every byte of w that is not ASCII or needs an
// escape in a string. If there is no such byte, no high bit is set.
func special(w uint64) uint64 {
	quote, slash := w^('"'*ones), w^('\\'*ones)
	return w | (w - ' '*ones) | (quote - ones) | (slash - ones)
}

// appendEscape appends the escape of c, in the short form if there is one.
func appendEscape(b []byte, c byte) []byte {
	if i := strings.IndexByte(escaped, c); i >= 0 {
		return append(b, '\\', letters[i])
	}
	return fmt.Appendf(b, "\\u%04x", c)
}

// AppendASCII is like AppendString, but also escapes everything that is not ASCII, as Python's
// json.dumps does.
func AppendASCII(b []byte, s string) []byte {
	for _, r := range string(AppendString(nil, s)) {
		if r < 0x7f { // Python also escapes DEL, which is 0x7f
			b = append(b, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			b = fmt.Appendf(b, "\\u%04x", unit)
		}
	}
	return b
}
