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
	floats   kind = iota // of at most 16 bits
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
	case safetensors.BF16, safetensors.F16:
		return floats, d
	}
	return floats, safetensors.BF16 // which represents all floats of at most 8 bits
}

// tables caches what values returns, by dtype.
var tables sync.Map

// values returns the numbers that the codes of a dtype of 8 or 16 bits stand for.
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
		codes := make([]uint16, n)
		for i := range codes {
			codes[i] = uint16(i)
		}
		t, err := safetensors.NewTensor(d, []int{n}, codes)
		if err == nil {
			values, err = safetensors.Append(values[:0], t)
		}
		if err != nil {
			panic(err) // BF16 and F16 have 16 bits, and float64 represents them
		}
		return values
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

// decode returns all numbers in b.
func (k kind) decode(d safetensors.DType, b []byte) []float64 {
	if !k.coded() {
		values := make([]float64, len(b)/k.size())
		for i := range values {
			values[i] = k.number(b[i*k.size():])
		}
		return values
	}
	table := k.values(d)
	values := make([]float64, len(b)*8/d.Bits())
	for i := range values {
		if d.Bits() == 8 {
			values[i] = table[b[i]]
		} else {
			values[i] = table[binary.LittleEndian.Uint16(b[2*i:])]
		}
	}
	return values
}
