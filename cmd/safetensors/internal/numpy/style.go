package numpy

import (
	"math"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
)

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

// javascript is the style of JSON: the shortest text that only x of all floats of that
// size reads as, and strings for what JSON lacks.
var javascript = style{
	"false", "true",
	appendFloat,
	func(b []byte, re, im float64) []byte {
		b = appendFloat(append(b, '['), re, 32)
		return append(appendFloat(append(b, ','), im, 32), ']')
	},
}

func appendFloat(b []byte, x float64, bits int) []byte {
	switch {
	case math.IsNaN(x):
		return append(b, `"NaN"`...)
	case math.IsInf(x, 1):
		return append(b, `"Infinity"`...)
	case math.IsInf(x, -1):
		return append(b, `"-Infinity"`...)
	}
	return strconv.AppendFloat(b, x, 'g', -1, bits)
}
