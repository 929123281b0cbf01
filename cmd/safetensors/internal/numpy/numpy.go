// Package numpy prints arrays in numpy's layout, and as JSON.
package numpy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

// The defaults of numpy.set_printoptions.
const (
	threshold = 1000 // an array with more elements is summarized
	edgeItems = 3    // at both ends of each dimension, then
	lineWidth = 75
	precision = 8
)

// Print returns a tensor as text, its elements aligned. It reads what is printed and not
// much more.
func Print(t safetensors.Tensor) (string, error) {
	shown, err := corners(t)
	if err != nil {
		return "", err
	}
	element, err := python.of(shown)
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

// mostPrinted limits the elements that are printed, times the dimensions, each of which
// indents them: an array of many short dimensions has few elements in each, and many in
// all.
const mostPrinted = 1 << 21

// corners returns the elements of a tensor that are printed.
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

// ends returns the first and the last indices of a dimension.
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

// addressable returns t as a dtype of whole bytes, of which any slice can be read.
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

// array follows _formatArray of numpy: shown is the shape of what is printed of an array,
// next returns the next element of that.
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

// A style says how elements are written. Each func appends to b.
type style struct {
	no, yes string
	float   func(b []byte, x float64, bits int) []byte
	complex func(b []byte, re, im float64) []byte
}

// of returns a func that appends the text of an element of t by its number.
func (s style) of(t safetensors.Tensor) (func(b []byte, i int) []byte, error) {
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

// python is the style of %.8g of Python.
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

// general returns at most eight digits of a float of that size: of 0.1, not of the float64
// 0.10000000149 that a float32 of 0.1 is.
func general(x float64, bits int) string {
	x, _ = strconv.ParseFloat(strconv.FormatFloat(x, 'g', -1, bits), 64)
	text := strconv.FormatFloat(x, 'g', precision, 64)
	return strings.ToLower(strings.TrimPrefix(text, "+")) // +Inf is inf, and NaN nan
}
