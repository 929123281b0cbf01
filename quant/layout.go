package quant

import (
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A layout describes how a quantised tensor is stored as several tensors, its parts. The name of a
// part consists of the name of a module, or of a parameter, and a suffix. Layouts must not be
// modified.
type layout struct {
	name        string   // name of the layout in errors
	methods     []string // values of quant_method of configs that may describe this layout
	format      string   // name of the layout in a group of compressed-tensors, or in a marker of ComfyUI
	bits        int      // number of bits of a code; 0 if the config specifies it
	sizes       []int    // possible numbers of bits, if bits is 0
	numbers     *numbers // numbers of the codes; nil if the checkpoint contains them
	order       *[8]int  // order of codes in a group of eight, see dequant.Packing
	group       int      // number of elements in a group; 0 if the config specifies it
	constant    float32  // multiplies the results unless it is 0
	transposed  bool     // whether the rows of the parts are the columns of the result
	unspecified string   // property that only a config or a marker specifies; "" if names, dtypes and shapes suffice

	lay   func(*module)                      // sets the codes and the shape of the result
	scale func(*module) (height, length int) // brings the scales into the order of the result, and returns how many rows and columns share one

	parts []part // the first part holds the values; the first two parts identify the layout
	need  int    // number of parts that a module must have, counted from the first; 0 means all
}

// A part describes one of the tensors of a layout.
type part struct {
	role   role
	suffix string
	dtypes []safetensors.DType
}

// These are short names for dtypes, and for sets of dtypes.
const (
	bf16, f16, f32   = safetensors.BF16, safetensors.F16, safetensors.F32
	e4m3, e5m2, e8m0 = safetensors.F8_E4M3, safetensors.F8_E5M2, safetensors.F8_E8M0
	i8, i32, i64     = safetensors.I8, safetensors.I32, safetensors.I64
	u8, u32          = safetensors.U8, safetensors.U32
)

type is = []safetensors.DType

var isFloat, isScale = is{bf16, f16, f32}, is{bf16, f16, f32, e8m0, u8}

// ofParameter reports whether a suffix follows the name of a parameter, and not the name of a
// module.
func ofParameter(suffix string) bool { return suffix == "" || suffix[0] == '_' || suffix[0] == '.' }

// stem returns a name without the suffix of the part, and whether a tensor of this name can be such
// a part.
func (p part) stem(name string) (string, bool) {
	stem, ok := strings.CutSuffix(name, p.suffix)
	return stem, ok && (stem == "" || strings.HasSuffix(stem, ".") || ofParameter(p.suffix))
}

// has reports whether t can be the part, judging by its dtype. It is false for the zero Tensor.
func (p part) has(t safetensors.Tensor) bool { return slices.Contains(p.dtypes, t.DType()) }

// isBias reports whether a tensor is a bias, judging by its dtype and the last component of its
// name.
func isBias(name string, t safetensors.Tensor) bool {
	suffix := name[strings.LastIndexByte(name, '.')+1:]
	return (suffix == "bias" || strings.HasSuffix(suffix, "_bias")) && slices.Contains(isFloat, t.DType())
}
