// Package sample has something for each operator. Its test checks Clamp and not Sum.
package sample

import "errors"

var errNegative = errors.New("negative")

// Clamp returns n, but at most 10.
func Clamp(n int) (int, error) {
	if n < 0 {
		return 0, errNegative
	}
	return min(n, 10), nil
}

// Sum adds the odd numbers up to the first zero.
func Sum(numbers []int) (n int) {
	for _, x := range numbers {
		if x == 0 {
			break
		}
		if odd := x%2 != 0; odd && !(x <= -100) {
			n += x
		}
	}
	return n
}

// Join cannot do without its plus.
func Join(a, b string) string { return a + b }

// Forever ends if more is false.
func Forever(more bool) {
	for more {
	}
}
