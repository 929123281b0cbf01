// Package numbers reads elements of every dtype as float64, and formats such numbers.
package numbers

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/gosafetensors/safetensors"
)

// A Float is a float64 that is null in JSON if it is not finite.
type Float float64

func (f Float) MarshalJSON() ([]byte, error) {
	if x := float64(f); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// String formats a number with four significant digits, or as "-" if it is NaN.
func (f Float) String() string {
	if math.IsNaN(float64(f)) {
		return "-"
	}
	return strconv.FormatFloat(float64(f), 'g', 4, 64)
}

// Percent formats a finite number in percent with a few digits: 100 %, 5.0 %, 0.0012 %.
func (f Float) Percent() string {
	switch x := 100 * float64(f); {
	case x == 100:
		return "100 %"
	case math.Abs(x) >= 1e6:
		return fmt.Sprintf("%.2g %%", x)
	case math.Abs(x) >= 1:
		return fmt.Sprintf("%.1f %%", x)
	default:
		return fmt.Sprintf("%.2g %%", x)
	}
}

// Count returns the number of elements of t. Unlike Tensor.Len, it is an int64 on every system.
func Count(t safetensors.Tensor) int64 {
	return int64(uint64(t.Size()) * 8 / uint64(t.DType().Bits())) // the number of bits of a tensor fits a uint64
}

// Bytes returns the total size of tensors in bytes.
func Bytes(tensors map[string]safetensors.Tensor) (n int64) {
	for _, t := range tensors {
		n += t.Size()
	}
	return n
}

// Append appends the elements of t to dst. A boolean becomes 0 or 1; every byte except 0 is true. A
// complex number becomes two numbers. Integers of 64 bits are rounded.
func Append(dst []float64, t safetensors.Tensor) ([]float64, error) {
	switch t.DType() {
	case safetensors.BOOL:
		return convert(dst, t, func(b byte) float64 { return float64(min(b, 1)) })
	case safetensors.I64:
		return convert(dst, t, func(i int64) float64 { return float64(i) })
	case safetensors.U64:
		return convert(dst, t, func(u uint64) float64 { return float64(u) })
	case safetensors.C64:
		all, err := safetensors.Append([]complex64(nil), t)
		for _, c := range all {
			dst = append(dst, float64(real(c)), float64(imag(c)))
		}
		return dst, err
	}
	return safetensors.Append(dst, t)
}

func convert[T safetensors.Element](dst []float64, t safetensors.Tensor, number func(T) float64) ([]float64, error) {
	all, err := safetensors.Append([]T(nil), t)
	for _, x := range all {
		dst = append(dst, number(x))
	}
	return dst, err
}
