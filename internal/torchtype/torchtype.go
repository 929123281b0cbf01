// Package torchtype has the dtypes of PyTorch, and their names in safetensors.
package torchtype

// A Type is a dtype of PyTorch.
type Type struct {
	Name        string // in the module torch
	Safetensors string // its name there; "" if it has none whose elements are the same
	Width       int    // of an element, in bytes
	Number      int    // bytes of the numbers that an element consists of
}

// types are the dtypes whose tensors PyTorch saves as strided storages.
var types = []Type{
	{"float64", "F64", 8, 8},
	{"float32", "F32", 4, 4},
	{"float16", "F16", 2, 2},
	{"bfloat16", "BF16", 2, 2},
	{"int64", "I64", 8, 8},
	{"int32", "I32", 4, 4},
	{"int16", "I16", 2, 2},
	{"int8", "I8", 1, 1},
	{"uint64", "U64", 8, 8},
	{"uint32", "U32", 4, 4},
	{"uint16", "U16", 2, 2},
	{"uint8", "U8", 1, 1},
	{"bool", "BOOL", 1, 1},
	{"complex64", "C64", 8, 4},
	{"complex128", "", 16, 8},
	{"complex32", "", 4, 2},
	{"float8_e4m3fn", "F8_E4M3", 1, 1},
	{"float8_e5m2", "F8_E5M2", 1, 1},
	{"float8_e4m3fnuz", "F8_E4M3FNUZ", 1, 1},
	{"float8_e5m2fnuz", "F8_E5M2FNUZ", 1, 1},
	{"float8_e8m0fnu", "F8_E8M0", 1, 1},
	{"float4_e2m1fn_x2", "", 1, 1}, // two of F4, which PyTorch counts as one
	{"qint8", "", 1, 1},
	{"quint8", "", 1, 1},
	{"qint32", "", 4, 4},
	{"quint4x2", "", 1, 1},
	{"quint2x4", "", 1, 1},
	{"bits8", "", 1, 1},
	{"bits16", "", 2, 2},
	{"bits1x8", "", 1, 1},
	{"bits2x4", "", 1, 1},
	{"bits4x2", "", 1, 1},
}

// storages are the classes of typed storages, in the module torch, with the dtype of each.
var storages = map[string]string{
	"DoubleStorage":        "float64",
	"FloatStorage":         "float32",
	"HalfStorage":          "float16",
	"BFloat16Storage":      "bfloat16",
	"LongStorage":          "int64",
	"IntStorage":           "int32",
	"ShortStorage":         "int16",
	"CharStorage":          "int8",
	"ByteStorage":          "uint8",
	"BoolStorage":          "bool",
	"ComplexFloatStorage":  "complex64",
	"ComplexDoubleStorage": "complex128",
	"QInt8Storage":         "qint8",
	"QUInt8Storage":        "quint8",
	"QInt32Storage":        "qint32",
	"QUInt4x2Storage":      "quint4x2",
	"QUInt2x4Storage":      "quint2x4",
}

// Of returns a dtype by its name in the module torch.
func Of(name string) (t Type, ok bool) {
	for _, t := range types {
		if t.Name == name {
			return t, true
		}
	}
	return Type{}, false
}

// OfStorage returns the dtype of a class of storages, by its name in the module torch.
func OfStorage(class string) (t Type, ok bool) { return Of(storages[class]) }
