package pattern

import (
	"cmp"
	"strings"
)

// Compare orders names as people do: it compares numbers by value, so that layers.2 comes before
// layers.10, and other text byte by byte. It returns 0 only for equal names.
func Compare(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		i, j := digits(x), digits(y)
		if i == 0 || j == 0 {
			if x[0] != y[0] {
				return cmp.Compare(x[0], y[0])
			}
			x, y = x[1:], y[1:]
			continue
		}
		m, n := strings.TrimLeft(x[:i], "0"), strings.TrimLeft(y[:j], "0")
		if order := cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n)); order != 0 {
			return order
		}
		x, y = x[i:], y[j:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), cmp.Compare(a, b))
}

// digits returns the number of digits at the start of a text.
func digits(text string) int {
	n := 0
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	return n
}
