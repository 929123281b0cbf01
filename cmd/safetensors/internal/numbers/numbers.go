// Package numbers reads elements of every dtype as float64, and shows such numbers.
package numbers

import (
	"encoding/json"
	"math"
	"strconv"

	"github.com/gosafetensors/safetensors"
)

// A Float is null in JSON if it is not finite.
type Float float64

func (f Float) MarshalJSON() ([]byte, error) {
	if x := float64(f); math.IsNaN(x) || math.IsInf(x, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(f))
}

// String returns a number with a few digits.
func (f Float) String() string {
	if math.IsNaN(float64(f)) {
		return "-"
	}
	return strconv.FormatFloat(float64(f), 'g', 4, 64)
}

// Count returns the number of elements. Tensor.Len is an int.
func Count(t safetensors.Tensor) int64 {
	return int64(uint64(t.Size()) * 8 / uint64(t.DType().Bits())) // the bits of a tensor fit a uint64
}

// Bytes returns the bytes of all tensors.
func Bytes(tensors map[string]safetensors.Tensor) (n int64) {
	for _, t := range tensors {
		n += t.Size()
	}
	return n
}

// Append appends the elements of t: 0 and 1 for booleans, of which every byte but 0 is
// true, two numbers for a complex one. Integers of 64 bits are rounded.
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
