package jsonscan

import (
	"fmt"
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

func appendEscape(b []byte, c byte) []byte {
	const (
		short = "btn\x00fr" // the escapes of 0x08 to 0x0d; 0x0b has none
		hex   = "0123456789abcdef"
	)
	switch {
	case c >= ' ':
		return append(b, '\\', c)
	case c >= '\b' && c <= '\r' && c != '\v':
		return append(b, '\\', short[c-'\b'])
	}
	return append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
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
