// Package started has functions that its test calls in other processes.
package started

// limit is a constant, which has no switch.
const limit = 3

// Twice doubles numbers.
func Twice(n int) int {
	if n > limit {
		return 2 * limit
	}
	return 2 * n
}

// Once ends with a loop that has a label.
func Once(n int) int {
again:
	for n > 1 {
		n--
		continue again
	}
	return n
}

// Uncalled has no test.
func Uncalled() int { return 7 }

// Last must return.
func Last() int {
	panic("last")
}
