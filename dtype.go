package safetensors

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"math/bits"
	"reflect"
	"slices"

	"github.com/gosafetensors/safetensors/internal/float"
)

// A DType is the type of a tensor's elements. Its text is its spelling in a file. The numbers of
// the constants never change. The zero DType is invalid.
type DType uint8

// The dtypes of the format: integers, IEEE 754 floats, and those of the OCP
// Microscaling Formats (MX) v1.0, the OCP 8-bit Floating Point Specification v1.0 and,
// for the FNUZ variants, arXiv:2206.02915.
const (
	BOOL    DType = iota + 1 // a byte, usually 0 or 1
	F4                       // E2M1, two per byte, the first in the low bits
	F6_E2M3                  // four in three bytes, the first in the low bits
	F6_E3M2                  // four in three bytes, the first in the low bits
	U8
	I8
	F8_E5M2     // with infinities and NaNs
	F8_E4M3     // no infinities, one NaN per sign (E4M3FN)
	F8_E8M0     // a power of two: 2^(x-127); 255 is NaN
	F8_E4M3FNUZ // no infinities, no negative zero; 0x80 is the NaN
	F8_E5M2FNUZ // no infinities, no negative zero; 0x80 is the NaN
	I16
	U16
	F16  // IEEE 754 binary16
	BF16 // the upper half of a binary32
	I32
	U32
	F32 // IEEE 754 binary32
	C64 // two binary32, the real part first
	F64 // IEEE 754 binary64
	I64
	U64
)

// dtypes holds all properties of each dtype.
var dtypes = [...]dtypeRow{
	BOOL:        {"BOOL", 10, 8, reflect.Uint8, reflect.Uint8, float.None, false},
	F4:          {"F4", 20, 4, 0, 0, float.F4, false},
	F6_E2M3:     {"F6_E2M3", 30, 6, 0, 0, float.E2M3, false},
	F6_E3M2:     {"F6_E3M2", 40, 6, 0, 0, float.E3M2, false},
	U8:          {"U8", 50, 8, reflect.Uint8, reflect.Uint8, float.U8, false},
	I8:          {"I8", 60, 8, reflect.Int8, reflect.Uint8, float.I8, false},
	F8_E5M2:     {"F8_E5M2", 70, 8, reflect.Uint8, reflect.Uint8, float.E5M2, false},
	F8_E4M3:     {"F8_E4M3", 80, 8, reflect.Uint8, reflect.Uint8, float.E4M3, false},
	F8_E8M0:     {"F8_E8M0", 90, 8, reflect.Uint8, reflect.Uint8, float.E8M0, false},
	F8_E4M3FNUZ: {"F8_E4M3FNUZ", 100, 8, reflect.Uint8, reflect.Uint8, float.E4M3FNUZ, false},
	F8_E5M2FNUZ: {"F8_E5M2FNUZ", 110, 8, reflect.Uint8, reflect.Uint8, float.E5M2FNUZ, false},
	I16:         {"I16", 120, 16, reflect.Int16, reflect.Uint16, float.I16, false},
	U16:         {"U16", 130, 16, reflect.Uint16, reflect.Uint16, float.U16, false},
	F16:         {"F16", 140, 16, reflect.Uint16, reflect.Uint16, float.F16, false},
	BF16:        {"BF16", 150, 16, reflect.Uint16, reflect.Uint16, float.BF16, false},
	I32:         {"I32", 160, 32, reflect.Int32, reflect.Uint32, float.I32, false},
	U32:         {"U32", 170, 32, reflect.Uint32, reflect.Uint32, float.U32, false},
	F32:         {"F32", 180, 32, reflect.Float32, reflect.Uint32, float.F32, false},
	C64:         {"C64", 190, 64, reflect.Complex64, reflect.Uint64, float.None, false},
	F64:         {"F64", 200, 64, reflect.Float64, reflect.Uint64, float.F64, false},
	I64:         {"I64", 210, 64, reflect.Int64, reflect.Uint64, float.None, false},
	U64:         {"U64", 220, 64, reflect.Uint64, reflect.Uint64, float.None, false},
}

// A dtypeRow describes a dtype.
type dtypeRow struct {
	name   string
	order  uint16       // position in the order of the reference; gaps leave room for new dtypes
	bits   uint8        // size of an element in bits
	kind   reflect.Kind // Go type of an element; 0 where an element is not a whole byte
	raw    reflect.Kind // unsigned integer with the size of an element; 0 where an element is not a whole byte
	float  float.Format // format in which elements are converted; None if they never are
	padded bool         // whether a tensor may end with unused bits in its last byte; otherwise its elements must fill whole bytes
}

// bytes returns the size of n elements in bytes. ok is false if no tensor can have n elements: if
// the row is that of the invalid dtype, if the number of bits overflows, or if the bits do not fill
// whole bytes and the dtype has no padding.
func (r *dtypeRow) bytes(n uint64) (size int64, ok bool) {
	hi, lo := bits.Mul64(n, uint64(r.bits))
	size = int64(lo / 8)
	if r.padded && lo%8 != 0 {
		size++
		lo = 0
	}
	return size, r.bits > 0 && hi == 0 && lo%8 == 0
}

// DTypes yields all dtypes in the order of the reference implementation.
func DTypes() iter.Seq[DType] {
	var all []DType
	for d := BOOL; d.valid(); d++ {
		all = append(all, d)
	}
	slices.SortFunc(all, compareDTypes)
	return slices.Values(all)
}

// compareDTypes compares dtypes in the order of the reference. Invalid ones come first.
func compareDTypes(a, b DType) int {
	return cmp.Compare(dtypes[a.known()].order, dtypes[b.known()].order)
}

// valid reports whether d is one of the constants.
func (d DType) valid() bool { return 0 < d && int(d) < len(dtypes) }

// known returns d, or 0 if d is invalid. The result is always an index of dtypes, whose row 0 is
// empty.
func (d DType) known() DType {
	if d.valid() {
		return d
	}
	return 0
}

// Bits returns the size of one element in bits, or 0 if d is invalid.
func (d DType) Bits() int { return int(dtypes[d.known()].bits) }

// IsFloat reports whether d is a floating-point dtype: F4 to F64, including F8_E8M0, but not C64.
func (d DType) IsFloat() bool { return float.Convertible(d.float(), float.F32) }

// float returns the format in which the elements are converted. It is float.None if d is invalid,
// or if its elements are never converted.
func (d DType) float() float.Format { return dtypes[d.known()].float }

// String returns the spelling of d in a file, "DType(n)" if d is invalid.
func (d DType) String() string {
	if !d.valid() {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// MarshalText returns the spelling of d in a file. An invalid d is an error.
func (d DType) MarshalText() ([]byte, error) {
	if !d.valid() {
		return nil, prefixed(fmt.Errorf("invalid dtype %d", uint8(d)))
	}
	return []byte(dtypes[d].name), nil
}

// UnmarshalText sets d to the dtype with this spelling. An unknown spelling is an error and
// leaves d unchanged. The spelling of a file has capitals: the error for "bf16" names "BF16".
func (d *DType) UnmarshalText(text []byte) error {
	if v := parseDType(text); v.valid() {
		*d = v
		return nil
	}
	err := fmt.Errorf("unknown dtype %s", quote(string(text)))
	if meant := parseDType(bytes.ToUpper(text)); meant.valid() {
		err = fmt.Errorf("%w; did you mean %q?", err, meant)
	}
	return prefixed(err)
}

// parseDType returns the dtype with this spelling, 0 if there is none.
func parseDType(text []byte) DType {
	for d := range dtypes {
		if string(text) == dtypes[d].name {
			return DType(d)
		}
	}
	return 0
}
