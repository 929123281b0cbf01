// Package numpy prints arrays as numpy does.
package numpy

import (
	"strings"
)

// The defaults of numpy.set_printoptions.
const (
	threshold = 1000 // an array with more elements is summarized
	edgeItems = 3    // of each dimension, then
	lineWidth = 75
	precision = 8
)

// Corners returns which indices of each dimension are printed.
func Corners(shape []int) [][]int {
	summarized := summarizes(shape)
	indices := make([][]int, len(shape))
	for d, n := range shape {
		if summarized && n > 2*edgeItems {
			indices[d] = []int{0, 1, 2, n - 3, n - 2, n - 1}
			continue
		}
		indices[d] = make([]int, n)
		for i := range n {
			indices[d][i] = i
		}
	}
	return indices
}

// summarizes reports whether an array has more elements than are printed.
func summarizes(shape []int) bool {
	n := 1
	for _, size := range shape {
		if size == 0 {
			return false
		}
		if n > threshold/size {
			return true
		}
		n *= size
	}
	return false
}

// Values are the elements of an array at its Corners, in row-major order. One field
// is set.
type Values struct {
	Floats  []float64
	Bits    int // of a float: 16, 32 or 64
	Ints    []int64
	Uints   []uint64
	Bools   []bool
	Complex []complex64
}

// Format returns an array of that shape as text.
func Format(shape []int, v Values) string {
	if len(shape) == 0 {
		return v.scalar()
	}
	for _, n := range shape {
		if n == 0 {
			return "[]"
		}
	}
	p := &printer{shape: shape, corners: Corners(shape), element: v.format()}
	return p.array(0, 0, " ", lineWidth)
}

// A printer follows _formatArray of numpy.
type printer struct {
	shape   []int
	corners [][]int
	element func(i int) string
}

// array returns the part of an array from dimension d on whose first printed element
// is number first. width is the rest of a line.
func (p *printer) array(d, first int, indent string, width int) string {
	stride := 1
	for _, indices := range p.corners[d+1:] {
		stride *= len(indices)
	}
	cut := len(p.corners[d]) < p.shape[d]
	var b strings.Builder
	if d == len(p.shape)-1 {
		line := indent
		put := func(word string) {
			if len(line)+len(word) > width-1 && len(line) > len(indent) {
				b.WriteString(strings.TrimRight(line, " ") + "\n")
				line = indent
			}
			line += word
		}
		for i := range p.corners[d] {
			if cut && i == edgeItems {
				put("...")
				line += " "
			}
			put(p.element(first + i))
			if i+1 < len(p.corners[d]) {
				line += " "
			}
		}
		b.WriteString(line)
	} else {
		separator := strings.Repeat("\n", len(p.shape)-1-d)
		for i := range p.corners[d] {
			if cut && i == edgeItems {
				b.WriteString(indent + "..." + separator)
			}
			b.WriteString(indent + p.array(d+1, first+i*stride, indent+" ", width-1))
			if i+1 < len(p.corners[d]) {
				b.WriteString(separator)
			}
		}
	}
	return "[" + b.String()[len(indent):] + "]"
}
