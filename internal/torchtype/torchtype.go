// Package torchtype has a table of the dtypes of PyTorch, with the names that they have in
// safetensors.
package torchtype

import "slices"

// A Type is a dtype of PyTorch.
type Type struct {
	Name        string // name in the module torch
	storage     string // class of its typed storages in the module torch, or "" if there is none
	Safetensors string // name of the dtype with the same elements in safetensors, or "" if there is none
	Width       int    // size of an element in bytes
	Number      int    // size in bytes of each number in an element: half of Width for complex numbers
}

// types lists the dtypes whose tensors PyTorch saves as strided storages.
var types = []Type{
	{"float64", "DoubleStorage", "F64", 8, 8},
	{"float32", "FloatStorage", "F32", 4, 4},
	{"float16", "HalfStorage", "F16", 2, 2},
	{"bfloat16", "BFloat16Storage", "BF16", 2, 2},
	{"int64", "LongStorage", "I64", 8, 8},
	{"int32", "IntStorage", "I32", 4, 4},
	{"int16", "ShortStorage", "I16", 2, 2},
	{"int8", "CharStorage", "I8", 1, 1},
	{"uint64", "", "U64", 8, 8},
	{"uint32", "", "U32", 4, 4},
	{"uint16", "", "U16", 2, 2},
	{"uint8", "ByteStorage", "U8", 1, 1},
	{"bool", "BoolStorage", "BOOL", 1, 1},
	{"complex64", "ComplexFloatStorage", "C64", 8, 4},
	{"complex128", "ComplexDoubleStorage", "", 16, 8},
	{"complex32", "", "", 4, 2},
	{"float8_e4m3fn", "", "F8_E4M3", 1, 1},
	{"float8_e5m2", "", "F8_E5M2", 1, 1},
	{"float8_e4m3fnuz", "", "F8_E4M3FNUZ", 1, 1},
	{"float8_e5m2fnuz", "", "F8_E5M2FNUZ", 1, 1},
	{"float8_e8m0fnu", "", "F8_E8M0", 1, 1},
	{"float4_e2m1fn_x2", "", "", 1, 1}, // an element is a byte that holds two numbers of dtype F4
	{"qint8", "QInt8Storage", "", 1, 1},
	{"quint8", "QUInt8Storage", "", 1, 1},
	{"qint32", "QInt32Storage", "", 4, 4},
	{"quint4x2", "QUInt4x2Storage", "", 1, 1},
	{"quint2x4", "QUInt2x4Storage", "", 1, 1},
	{"bits8", "", "", 1, 1},
	{"bits16", "", "", 2, 2},
	{"bits1x8", "", "", 1, 1},
	{"bits2x4", "", "", 1, 1},
	{"bits4x2", "", "", 1, 1},
}

// loaded lists the dtypes in which programs load models, by their names in safetensors.
var loaded = []string{"F64", "F32", "F16", "BF16"}

// OfLoaded returns the dtype with the same elements as a dtype of safetensors, if it is one of those
// in which programs load models: a config.json may name it.
func OfLoaded(safetensors string) (t Type, ok bool) {
	if !slices.Contains(loaded, safetensors) {
		return t, false
	}
	return find(func(t Type) bool { return t.Safetensors == safetensors })
}

// Of returns the dtype with this name in the module torch.
func Of(name string) (t Type, ok bool) {
	return find(func(t Type) bool { return t.Name == name })
}

// OfStorage returns the dtype of a class of typed storages. class is the name of the class in the
// module torch.
func OfStorage(class string) (t Type, ok bool) {
	return find(func(t Type) bool { return t.storage == class && class != "" })
}

func find(is func(Type) bool) (t Type, ok bool) {
	if i := slices.IndexFunc(types, is); i >= 0 {
		return types[i], true
	}
	return t, false
}
