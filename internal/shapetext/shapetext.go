// Package shapetext formats shapes for errors and findings, in the form that they have in the header of a file.
package shapetext

import (
	"fmt"
	"strconv"
)

// Of returns sizes or positions, one for each dimension, as text: [64,32]. It shortens those with very many
// dimensions.
func Of[T int | int64](dims []T) string {
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
