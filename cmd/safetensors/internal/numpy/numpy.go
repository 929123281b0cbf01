// Package numpy formats arrays in the layout of NumPy, and as JSON.
package numpy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// These are defaults of numpy.set_printoptions.
const (
	threshold = 1000 // number of elements above which an array is summarized
	edgeItems = 3    // number of elements at both ends of each dimension that a summary shows
	lineWidth = 75   // width of a line in characters
	precision = 8    // number of digits of a float
)

// Print returns a tensor as text with aligned elements. It reads little more than the elements that
// it shows.
func Print(t safetensors.Tensor) (string, error) {
	shown, err := corners(t)
	if err != nil {
		return "", err
	}
	element, err := python.formatter(shown)
	if err != nil {
		return "", err
	}
	texts := make([]string, shown.Len())
	if len(texts) == 0 {
		return "[]", nil
	}
	width := 0
	for i := range texts {
		texts[i] = string(element(nil, i))
		width = max(width, len(texts[i]))
	}
	next := -1
	return array(t.Shape(), shown.Shape(), " ", func() string {
		next++
		return fmt.Sprintf("%*s", width, texts[next])
	}), nil
}

// mostPrinted limits the number of shown elements times the number of dimensions, since each
// dimension indents the elements. An array with many short dimensions has few elements in each
// dimension, but many elements in all.
const mostPrinted = 1 << 21

// corners returns the elements of a tensor that are shown: all, or those of a summary.
func corners(t safetensors.Tensor) (safetensors.Tensor, error) {
	shape := t.Shape()
	if t.Len() <= threshold {
		return t, nil
	}
	n := 1
	for _, size := range shape {
		if n *= min(size, 2*edgeItems); n > mostPrinted/len(shape) {
			return t, fmt.Errorf("%v has too many dimensions to be printed: select a slice", t)
		}
	}
	t, err := addressable(t)
	for d, size := range shape {
		if err == nil && size > 2*edgeItems {
			t, err = ends(t, d)
		}
	}
	return t, err
}

// ends returns t without the indices of a dimension that a summary leaves out.
func ends(t safetensors.Tensor, dim int) (safetensors.Tensor, error) {
	size, before := t.Shape()[dim], slices.Repeat([]safetensors.Range{safetensors.All()}, dim)
	first, err := t.Slice(append(before, safetensors.Span(0, edgeItems))...)
	if err != nil {
		return t, err
	}
	last, err := t.Slice(append(before, safetensors.Span(size-edgeItems, size))...)
	if err != nil {
		return t, err
	}
	return safetensors.Concat(dim, first, last)
}

// addressable returns t, or t converted to F32 if its elements do not fill whole bytes, so that any
// slice can be read.
func addressable(t safetensors.Tensor) (safetensors.Tensor, error) {
	if t.DType().Bits()%8 == 0 {
		return t, nil
	}
	whole, err := t.Convert(safetensors.F32)
	if err != nil {
		return t, err
	}
	return safetensors.NewTensorAt(safetensors.F32, t.Shape(), whole)
}

// array formats an array as NumPy's _formatArray does. shown is the shape of the part of the array
// that is shown, and next returns the text of the next element of that part.
func array(shape, shown []int, indent string, next func() string) string {
	if len(shape) == 0 {
		return next()
	}
	var items []string
	for i := range shown[0] {
		if i == edgeItems && shown[0] < shape[0] {
			items = append(items, "...")
		}
		items = append(items, array(shape[1:], shown[1:], indent+" ", next))
	}
	if below := len(shape) - 1; below > 0 {
		return "[" + strings.Join(items, strings.Repeat("\n", below)+indent) + "]"
	}
	text, line := "", indent
	for _, item := range items {
		if len(line)+len(item) > lineWidth-len(indent) && len(line) > len(indent) {
			text += strings.TrimRight(line, " ") + "\n"
			line = indent
		}
		line += item + " "
	}
	return "[" + (text + strings.TrimSuffix(line, " "))[len(indent):] + "]"
}

// A style formats elements. Each func appends to b.
type style struct {
	no, yes string
	float   func(b []byte, x float64, bits int) []byte
	complex func(b []byte, re, im float64) []byte
}

// formatter returns a func that appends the text of element i of t.
func (s style) formatter(t safetensors.Tensor) (func(b []byte, i int) []byte, error) {
	switch t.DType() {
	case safetensors.I64:
		all, err := safetensors.Append([]int64(nil), t)
		return func(b []byte, i int) []byte { return strconv.AppendInt(b, all[i], 10) }, err
	case safetensors.U64:
		all, err := safetensors.Append([]uint64(nil), t)
		return func(b []byte, i int) []byte { return strconv.AppendUint(b, all[i], 10) }, err
	}
	all, err := numbers.Append(nil, t)
	switch d := t.DType(); {
	case d == safetensors.BOOL:
		return func(b []byte, i int) []byte { return append(b, [2]string{s.no, s.yes}[int(all[i])]...) }, err
	case d == safetensors.C64:
		return func(b []byte, i int) []byte { return s.complex(b, all[2*i], all[2*i+1]) }, err
	case d.IsFloat():
		return func(b []byte, i int) []byte { return s.float(b, all[i], max(32, d.Bits())) }, err
	}
	return func(b []byte, i int) []byte { return strconv.AppendFloat(b, all[i], 'f', -1, 64) }, err
}

// python is the style of %.8g in Python.
var python = style{
	"False", "True",
	func(b []byte, x float64, bits int) []byte { return append(b, general(x, bits)...) },
	func(b []byte, re, im float64) []byte {
		imaginary := general(im, 32)
		if imaginary[0] != '-' {
			imaginary = "+" + imaginary
		}
		return append(b, general(re, 32)+imaginary+"j"...)
	},
}

// general formats a float of this many bits with at most eight digits. It starts from the shortest
// text that identifies the float: the float32 nearest to 0.1 becomes 0.1, although its value is
// 0.10000000149.
func general(x float64, bits int) string {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, bits), 64)
	text := strconv.FormatFloat(x, 'g', precision, 64)
	return strings.ToLower(strings.TrimPrefix(text, "+")) // +Inf becomes inf, and NaN becomes nan
}
