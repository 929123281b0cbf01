package safetensors

import (
	"cmp"
	"fmt"
	"iter"
	"reflect"
	"slices"

	"github.com/gosafetensors/safetensors/internal/float"
)

// A DType is the type of a tensor's elements. The constants are those of the
// format, spelled as in the file; their numbers never change. The zero DType is
// invalid.
type DType uint8

// The dtypes of the format. The sub-byte and 8-bit floats are those of the OCP
// Microscaling Formats (MX) specification v1.0 and of the OCP 8-bit Floating
// Point Specification v1.0; the FNUZ variants (finite, no negative zero) are
// those of "8-bit Numerical Formats for Deep Neural Networks"
// (arXiv:2206.02915).
const (
	BOOL        DType = iota + 1 // one byte, 0 or 1 by convention; any byte is accepted
	F4                           // E2M1, two elements a byte, element 0 in the low bits
	F6_E2M3                      // four elements in three bytes, element 0 in the low bits
	F6_E3M2                      // four elements in three bytes, element 0 in the low bits
	U8                           // unsigned 8-bit integer
	I8                           // signed 8-bit integer
	F8_E5M2                      // with infinities and NaNs, as in IEEE 754
	F8_E4M3                      // no infinities, one NaN per sign (E4M3FN)
	F8_E8M0                      // a power of two: 2^(x-127); 255 is NaN
	F8_E4M3FNUZ                  // no infinities, no negative zero; 0x80 is the NaN
	F8_E5M2FNUZ                  // no infinities, no negative zero; 0x80 is the NaN
	I16                          // signed 16-bit integer
	U16                          // unsigned 16-bit integer
	F16                          // IEEE 754 binary16
	BF16                         // the upper half of a binary32
	I32                          // signed 32-bit integer
	U32                          // unsigned 32-bit integer
	F32                          // IEEE 754 binary32
	C64                          // complex: two binary32, the real part first
	F64                          // IEEE 754 binary64
	I64                          // signed 64-bit integer
	U64                          // unsigned 64-bit integer
	// A new dtype comes last.
)

// dtypes holds everything that distinguishes one dtype from another.
var dtypes = [...]struct {
	name  string
	order uint16       // in the reference: only the sequence counts, so that a row fits between two
	bits  uint8        // per element
	kind  reflect.Kind // of the Go type of an element; 0 where an element is no whole byte
	raw   reflect.Kind // of the unsigned integer of the element's size; 0 as above
	float float.Format // in which elements are converted; None if they never are
}{
	BOOL:        {"BOOL", 10, 8, reflect.Uint8, reflect.Uint8, float.None},
	F4:          {"F4", 20, 4, 0, 0, float.F4},
	F6_E2M3:     {"F6_E2M3", 30, 6, 0, 0, float.E2M3},
	F6_E3M2:     {"F6_E3M2", 40, 6, 0, 0, float.E3M2},
	U8:          {"U8", 50, 8, reflect.Uint8, reflect.Uint8, float.U8},
	I8:          {"I8", 60, 8, reflect.Int8, reflect.Uint8, float.I8},
	F8_E5M2:     {"F8_E5M2", 70, 8, reflect.Uint8, reflect.Uint8, float.E5M2},
	F8_E4M3:     {"F8_E4M3", 80, 8, reflect.Uint8, reflect.Uint8, float.E4M3},
	F8_E8M0:     {"F8_E8M0", 90, 8, reflect.Uint8, reflect.Uint8, float.E8M0},
	F8_E4M3FNUZ: {"F8_E4M3FNUZ", 100, 8, reflect.Uint8, reflect.Uint8, float.E4M3FNUZ},
	F8_E5M2FNUZ: {"F8_E5M2FNUZ", 110, 8, reflect.Uint8, reflect.Uint8, float.E5M2FNUZ},
	I16:         {"I16", 120, 16, reflect.Int16, reflect.Uint16, float.I16},
	U16:         {"U16", 130, 16, reflect.Uint16, reflect.Uint16, float.U16},
	F16:         {"F16", 140, 16, reflect.Uint16, reflect.Uint16, float.F16},
	BF16:        {"BF16", 150, 16, reflect.Uint16, reflect.Uint16, float.BF16},
	I32:         {"I32", 160, 32, reflect.Int32, reflect.Uint32, float.I32},
	U32:         {"U32", 170, 32, reflect.Uint32, reflect.Uint32, float.U32},
	F32:         {"F32", 180, 32, reflect.Float32, reflect.Uint32, float.F32},
	C64:         {"C64", 190, 64, reflect.Complex64, reflect.Uint64, float.None},
	F64:         {"F64", 200, 64, reflect.Float64, reflect.Uint64, float.F64},
	I64:         {"I64", 210, 64, reflect.Int64, reflect.Uint64, float.None},
	U64:         {"U64", 220, 64, reflect.Uint64, reflect.Uint64, float.None},
}

// DTypes yields all dtypes in the order of the reference implementation, which
// lists the tensors of a file by dtype, in descending order.
func DTypes() iter.Seq[DType] {
	var all []DType
	for d := range DType(len(dtypes)) {
		if d.valid() {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, compareDTypes)
	return slices.Values(all)
}

// compareDTypes compares dtypes in the order of the reference, after invalid ones.
func compareDTypes(a, b DType) int { return cmp.Compare(a.order(), b.order()) }

func (d DType) order() uint16 {
	if !d.valid() {
		return 0
	}
	return dtypes[d].order
}

// valid reports whether d is one of the constants.
func (d DType) valid() bool { return 0 < d && int(d) < len(dtypes) }

// Bits returns the size of one element in bits: 4, 6, 8, 16, 32 or 64. It is 0 if
// d is invalid.
func (d DType) Bits() int {
	if !d.valid() {
		return 0
	}
	return int(dtypes[d].bits)
}

// float returns the format in which elements are converted, float.None if d is
// invalid or they never are.
func (d DType) float() float.Format {
	if !d.valid() {
		return float.None
	}
	return dtypes[d].float
}

// String returns the spelling of d in a file, such as "BF16", or "DType(n)" if
// d is invalid.
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

// UnmarshalText sets d to the dtype with that spelling. Case matters, as in the
// format. An unknown spelling is an error and leaves d unchanged.
func (d *DType) UnmarshalText(text []byte) error {
	if v := parseDType(text); v.valid() {
		*d = v
		return nil
	}
	return prefixed(fmt.Errorf("unknown dtype %q", text))
}

// parseDType returns the dtype with that spelling, 0 if there is none.
func parseDType(text []byte) DType {
	for d := range dtypes {
		if string(text) == dtypes[d].name {
			return DType(d)
		}
	}
	return 0
}
