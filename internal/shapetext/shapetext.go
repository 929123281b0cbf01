// Package shapetext formats shapes and counts for errors and findings. A shape has the form that it has in the header of a file.
package shapetext

import (
	"fmt"
	"strconv"
)

// Of returns sizes or positions, one for each dimension, as text: [64,32]. It shortens those with very many
// dimensions.
func Of[T int | int64 | uint64](dims []T) string {
	const limit = 32
	b := []byte{'['}
	for i, dim := range dims {
		if i > 0 {
			b = append(b, ',')
		}
		if i == limit {
			return string(b) + fmt.Sprintf("... %d dimensions]", len(dims))
		}
		b = strconv.AppendInt(b, int64(dim), 10)
	}
	return string(append(b, ']'))
}

// Count returns a number with a regular noun, such as "1 element" and "2 elements".
func Count[T int | int64 | uint64](n T, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
