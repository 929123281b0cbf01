package stats

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/gosafetensors/safetensors"
)

// A kind is how the elements of some dtypes are numbers.
type kind uint8

const (
	floats   kind = iota // of 16, 8 or 4 bits
	signed               // integers of at most 16 bits
	unsigned             // the same, and BOOL
	float32s             // also the two parts of complex numbers
	float64s
	int32s
	int64s
	uint32s
	uint64s
)

// coded reports whether the elements have so few bits that it is enough to count how
// often each code is there.
func (k kind) coded() bool { return k < float32s }

// others returns 0 if the elements are floats, 1 if not.
func (k kind) others() int {
	switch k {
	case floats, float32s, float64s:
		return 0
	}
	return 1
}

// kindOf returns the kind of a dtype, and the dtype that its elements are read as.
func kindOf(d safetensors.DType) (kind, safetensors.DType) {
	switch d {
	case safetensors.F32, safetensors.C64:
		return float32s, d
	case safetensors.F64:
		return float64s, d
	case safetensors.I8, safetensors.I16:
		return signed, d
	case safetensors.BOOL, safetensors.U8, safetensors.U16:
		return unsigned, d
	case safetensors.I32:
		return int32s, d
	case safetensors.I64:
		return int64s, d
	case safetensors.U32:
		return uint32s, d
	case safetensors.U64:
		return uint64s, d
	case safetensors.F6_E2M3, safetensors.F6_E3M2:
		return floats, safetensors.BF16 // which represents them
	}
	return floats, d
}

// tables caches what values returns, by dtype.
var tables sync.Map

// values returns the numbers that the codes of a dtype of at most 16 bits stand for.
func (k kind) values(d safetensors.DType) []float64 {
	if table, ok := tables.Load(d); ok {
		return table.([]float64)
	}
	table, _ := tables.LoadOrStore(d, k.makeValues(d))
	return table.([]float64)
}

func (k kind) makeValues(d safetensors.DType) []float64 {
	n := 1 << d.Bits()
	values := make([]float64, n)
	switch k {
	case floats:
		return floatValues(d)
	case signed:
		for i := range values {
			values[i] = float64(i)
			if i >= n/2 {
				values[i] -= float64(n)
			}
		}
		return values
	}
	for i := range values {
		values[i] = float64(i)
		if d == safetensors.BOOL && i > 1 {
			values[i] = 1 // any byte but 0 is true
		}
	}
	return values
}

// floatValues is values for a float dtype.
func floatValues(d safetensors.DType) []float64 {
	n := 1 << d.Bits()
	var codes []byte
	for i := range n {
		codes = append(codes, byte(i)) // of 4 bits: the code, then a 0
		if d.Bits() == 16 {
			codes = append(codes, byte(i>>8))
		}
	}
	t, err := safetensors.NewTensor(d, []int{len(codes) * 8 / d.Bits()}, codes)
	var all []float64
	if err == nil {
		all, err = safetensors.Append(all, t)
	}
	if err != nil {
		panic(err) // float64 represents every float of at most 16 bits
	}
	values := make([]float64, n)
	for i := range values {
		values[i] = all[i*(len(all)/n)]
	}
	return values
}

// size returns the bytes of a number.
func (k kind) size() int {
	switch k {
	case float64s, int64s, uint64s:
		return 8
	}
	return 4
}

// number returns the number at the start of b.
func (k kind) number(b []byte) float64 {
	switch k {
	case float32s:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case int32s:
		return float64(int32(binary.LittleEndian.Uint32(b)))
	case uint32s:
		return float64(binary.LittleEndian.Uint32(b))
	case int64s:
		return float64(int64(binary.LittleEndian.Uint64(b)))
	case uint64s:
		return float64(binary.LittleEndian.Uint64(b))
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}
