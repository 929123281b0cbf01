package safetensors

import (
	"fmt"
	"reflect"
)

// A DType is the type of a tensor's elements. The constants are all that the
// format knows; their spelling is the one in the file. The zero DType is
// invalid.
//
// The order of the constants is that of the reference implementation, which
// writes tensors by dtype in descending order.
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
)

// dtypes holds all that distinguishes one dtype from another, but for the
// layout of the floats, which is in convert_layout.go.
var dtypes = [...]struct {
	name string
	bits uint8        // per element
	kind reflect.Kind // of the Go type of an element; 0 where an element is no whole byte
	raw  reflect.Kind // of the unsigned integer of the element's size; 0 as above
}{
	BOOL:        {"BOOL", 8, reflect.Uint8, reflect.Uint8},
	F4:          {"F4", 4, 0, 0},
	F6_E2M3:     {"F6_E2M3", 6, 0, 0},
	F6_E3M2:     {"F6_E3M2", 6, 0, 0},
	U8:          {"U8", 8, reflect.Uint8, reflect.Uint8},
	I8:          {"I8", 8, reflect.Int8, reflect.Uint8},
	F8_E5M2:     {"F8_E5M2", 8, reflect.Uint8, reflect.Uint8},
	F8_E4M3:     {"F8_E4M3", 8, reflect.Uint8, reflect.Uint8},
	F8_E8M0:     {"F8_E8M0", 8, reflect.Uint8, reflect.Uint8},
	F8_E4M3FNUZ: {"F8_E4M3FNUZ", 8, reflect.Uint8, reflect.Uint8},
	F8_E5M2FNUZ: {"F8_E5M2FNUZ", 8, reflect.Uint8, reflect.Uint8},
	I16:         {"I16", 16, reflect.Int16, reflect.Uint16},
	U16:         {"U16", 16, reflect.Uint16, reflect.Uint16},
	F16:         {"F16", 16, reflect.Uint16, reflect.Uint16},
	BF16:        {"BF16", 16, reflect.Uint16, reflect.Uint16},
	I32:         {"I32", 32, reflect.Int32, reflect.Uint32},
	U32:         {"U32", 32, reflect.Uint32, reflect.Uint32},
	F32:         {"F32", 32, reflect.Float32, reflect.Uint32},
	C64:         {"C64", 64, reflect.Complex64, reflect.Uint64},
	F64:         {"F64", 64, reflect.Float64, reflect.Uint64},
	I64:         {"I64", 64, reflect.Int64, reflect.Uint64},
	U64:         {"U64", 64, reflect.Uint64, reflect.Uint64},
}

// valid reports whether d is one of the constants.
func (d DType) valid() bool { return 0 < d && int(d) < len(dtypes) }

// Bits returns the size of one element in bits: 4 and 6 exist beside the
// multiples of 8. It is 0 if d is invalid.
func (d DType) Bits() int {
	if !d.valid() {
		return 0
	}
	return int(dtypes[d].bits)
}

// String returns the spelling of d in a file, such as "BF16", or "DType(n)" if
// d is invalid.
func (d DType) String() string {
	if !d.valid() {
		return fmt.Sprintf("DType(%d)", uint8(d))
	}
	return dtypes[d].name
}

// MarshalText returns the spelling of d in a file; it fails if d is invalid.
func (d DType) MarshalText() ([]byte, error) {
	if !d.valid() {
		return nil, fmt.Errorf("safetensors: invalid dtype %d", uint8(d))
	}
	return []byte(dtypes[d].name), nil
}

// UnmarshalText sets d to the dtype of that spelling. Upper and lower case
// differ, as in the format. If there is none, it fails and leaves d alone.
func (d *DType) UnmarshalText(text []byte) error {
	if v := parseDType(text); v.valid() {
		*d = v
		return nil
	}
	return fmt.Errorf("safetensors: unknown dtype %q", text)
}

// parseDType returns the dtype of that spelling, or 0 if there is none.
func parseDType(text []byte) DType {
	for d := BOOL; int(d) < len(dtypes); d++ {
		if string(text) == dtypes[d].name {
			return d
		}
	}
	return 0
}
