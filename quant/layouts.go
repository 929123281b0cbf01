package quant

import (
	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// A layout is a way to store a quantised tensor as several tensors. Their names are
// those of a module, or of a parameter, and a suffix each.
type layout struct {
	name       string   // for people
	methods    []string // the values of quant_method that have it
	format     string   // in a group of compressed-tensors, or in a marker of ComfyUI
	bits       int      // of a code; 0: the config says it,
	sizes      []int    // one of these
	numbers    *numbers // of the codes; nil: the checkpoint has them
	order      *[8]int  // of codes in a group of eight: see dequant.Packing
	group      int      // elements of a group; 0: the config says it
	constant   float32  // multiplies everything in the end, unless it is 0
	transposed bool     // the parts have the columns of the result as rows
	unsaid     string   // what only a config or a marker tells, "" if names, dtypes and shapes are enough

	lay   func(*module)                      // finds the codes, and the shape of the result
	scale func(*module) (height, length int) // finds scales that are stored in an unusual way. One is for so many rows and columns

	parts []part // the first has the values; this one and the second recognize the layout
	need  int    // a module must have the first so many; 0: all
}

// numbers are those that codes stand for, by the bits of a code.
type numbers [9]*dequant.Table

// A part is one of the tensors of a layout.
type part struct {
	role   role
	suffix string
	dtypes []safetensors.DType
}

type role uint8

const (
	values        role = iota
	zeros              // are subtracted from the values
	scales             // multiply them after that
	biases             // are added in the end
	index              // group of each input column
	shape              // of the result
	divisor            // of the scales
	factor             // of the scales
	codebook           // number of each code
	state              // JSON
	nestedScales       // of the scales
	nestedNumbers      // number of each code of the scales
	order              // of the elements: 0 for row by row
	marker             // names the layout
)

var (
	awqOrder  = [8]int{0, 2, 4, 6, 1, 3, 5, 7}
	pairOrder = [8]int{1, 0, 3, 2, 5, 4, 7, 6}
)

// Sets of dtypes.
var (
	isE4M3   = []safetensors.DType{safetensors.F8_E4M3}
	isE5M2   = []safetensors.DType{safetensors.F8_E5M2}
	isE8M0   = []safetensors.DType{safetensors.F8_E8M0}
	isPower  = []safetensors.DType{safetensors.F8_E8M0, safetensors.U8}
	isU8     = []safetensors.DType{safetensors.U8}
	isI8     = []safetensors.DType{safetensors.I8}
	isI32    = []safetensors.DType{safetensors.I32}
	isU32    = []safetensors.DType{safetensors.U32}
	isInt    = []safetensors.DType{safetensors.I64, safetensors.I32}
	isZero   = []safetensors.DType{safetensors.I32, safetensors.I8}
	isF32    = []safetensors.DType{safetensors.F32}
	isFloat  = []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32}
	isScale  = []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32, safetensors.F8_E8M0, safetensors.U8}
	isBytes  = []safetensors.DType{safetensors.U8, safetensors.BF16, safetensors.F16, safetensors.F32}
	is8OrF32 = []safetensors.DType{safetensors.U8, safetensors.F32}
)

// layouts are tried in order.
var layouts = []*layout{
	{name: "FP8 in blocks", methods: []string{fp8, mxfp8}, bits: 8, numbers: &e4m3Numbers,
		lay: layAlong, scale: scaleTiles, parts: []part{{values, "", isE4M3}, {scales, "_scale_inv", isScale}}},
	{name: "FP4 in groups of 32", methods: []string{fp8}, bits: 4, numbers: &e2m1Numbers, group: 32,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "", isI8}, {scales, "_scale_inv", isScale}}},
	{name: "FP8 in blocks of 128×128", methods: []string{fp8}, bits: 8, numbers: &e4m3Numbers, group: 128,
		lay: layAlong, scale: scaleTiles, parts: []part{{values, "weight", isE4M3}, {scales, "scale", isE8M0}}},
	{name: "FP4 in groups of 32", methods: []string{fp8}, bits: 4, numbers: &e2m1Numbers, group: 32,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", isI8}, {scales, "scale", isE8M0}}},
	{name: "MXFP8", methods: []string{compressed}, format: "mxfp8-quantized", bits: 8, numbers: &e4m3Numbers, group: 32, unsaid: "the order of its scales",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", isE4M3}, {scales, "weight_scale", isU8}}},
	{name: "FP8", methods: []string{compressed, fp8, fbgemm, modelOpt}, format: "float-quantized", bits: 8, numbers: &e4m3Numbers,
		lay: layAlong, scale: scaleDescribed, parts: []part{{values, "weight", isE4M3}, {scales, "weight_scale", isFloat}}},
	{name: "INT8", methods: []string{compressed}, format: "int-quantized", bits: 8, numbers: &signedNumbers,
		lay: layAlong, scale: scaleDescribed, need: 2, parts: []part{{values, "weight", isI8}, {scales, "weight_scale", isFloat}, {zeros, "weight_zero_point", isI8}}},
	{name: "packed integers", methods: []string{compressed}, format: "pack-quantized", sizes: []int{1, 2, 3, 4, 5, 6, 7, 8}, numbers: &offsetNumbers,
		lay: layWords, scale: scaleDescribed, need: 3, parts: []part{{values, "weight_packed", isI32}, {scales, "weight_scale", isFloat}, {shape, "weight_shape", isInt},
			{zeros, "weight_zero_point", isZero}, {index, "weight_g_idx", isI32}}},
	{name: "NVFP4", methods: []string{compressed}, format: "nvfp4-pack-quantized", bits: 4, numbers: &e2m1Numbers, group: 16,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight_packed", isU8}, {scales, "weight_scale", isE4M3}, {divisor, "weight_global_scale", isF32}}},
	{name: "MXFP4", methods: []string{compressed}, format: "mxfp4-pack-quantized", bits: 4, numbers: &e2m1Numbers, group: 32,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight_packed", isU8}, {scales, "weight_scale", isU8}}},
	{name: "NVFP4", methods: []string{modelOpt}, bits: 4, numbers: &e2m1Numbers, group: 16, unsaid: "the order of its values and scales",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", isU8}, {scales, "weight_scale", isE4M3}, {factor, "weight_scale_2", isF32}}},
	{name: "MXFP4", methods: []string{mxfp4}, bits: 4, numbers: &e2m1Numbers, group: 32, transposed: true,
		lay: layBlocks, scale: scaleDown, parts: []part{{values, "_blocks", isU8}, {scales, "_scales", isU8}}},
	{name: "AWQ", methods: []string{awq}, sizes: []int{4}, numbers: &unsignedNumbers, order: &awqOrder, transposed: true, unsaid: "the bits of its codes",
		lay: layDown, scale: scaleInputs, parts: []part{{values, "qweight", isI32}, {scales, "scales", isFloat}, {zeros, "qzeros", isI32}}},
	{name: "GPTQ", methods: []string{gptq}, sizes: []int{2, 3, 4, 8}, numbers: &unsignedNumbers, transposed: true, unsaid: "the bits of its codes",
		lay: layAlong, scale: scaleInputs, need: 3, parts: []part{{values, "qweight", isI32}, {scales, "scales", isFloat}, {zeros, "qzeros", isI32}, {index, "g_idx", isI32}}},
	pairs("NF4", ".quant_state.bitsandbytes__nf4"),
	pairs("FP4", ".quant_state.bitsandbytes__fp4"),
	{name: "INT8", methods: []string{bitsAndBytes}, bits: 8, numbers: &signedNumbers, constant: 0.007874015718698502, // 1/127, as the package multiplies by it
		lay: layAlong, scale: scaleRows, need: 2, parts: []part{{values, "weight", isI8}, {scales, "SCB", isF32}, {order, "weight_format", isU8}}},
	{name: "affine integers", methods: []string{mlx}, sizes: []int{2, 3, 4, 5, 6, 8}, numbers: &unsignedNumbers, unsaid: "the bits of its codes",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", isU32}, {scales, "scales", isFloat}, {biases, "biases", isFloat}}},
	{name: "scaled FP8", methods: []string{comfy}, format: "float8_e4m3fn", bits: 8, numbers: &e4m3Numbers,
		lay: layAlong, scale: scaleDescribed, need: 2, parts: []part{{values, "weight", isE4M3}, {scales, "weight_scale", isFloat}, marked}},
	{name: "scaled FP8", methods: []string{comfy}, format: "float8_e5m2", bits: 8, numbers: &e5m2Numbers,
		lay: layAlong, scale: scaleDescribed, need: 2, parts: []part{{values, "weight", isE5M2}, {scales, "weight_scale", isFloat}, marked}},
	{name: "INT8", methods: []string{comfy}, format: "int8_tensorwise", bits: 8, numbers: &signedNumbers,
		lay: layAlong, scale: scaleDescribed, need: 2, parts: []part{{values, "weight", isI8}, {scales, "weight_scale", isFloat}, marked}},
	{name: "NVFP4", methods: []string{comfy}, format: "nvfp4", bits: 4, numbers: &e2m1Numbers, order: &pairOrder, group: 16,
		lay: layAlong, scale: scaleBlocked, need: 3, parts: []part{{values, "weight", isU8}, {scales, "weight_scale", isE4M3}, {factor, "weight_scale_2", isF32}, marked}},
	{name: "MXFP8", methods: []string{comfy}, format: "mxfp8", bits: 8, numbers: &e4m3Numbers, group: 32,
		lay: layAlong, scale: scaleBlocked, need: 2, parts: []part{{values, "weight", isE4M3}, {scales, "weight_scale", isPower}, marked}},
	{name: "scaled FP8", methods: []string{comfy}, bits: 8, numbers: &e4m3Numbers, // without markers
		lay: layAlong, scale: scaleDescribed, parts: []part{{values, "weight", isE4M3}, {scales, "scale_weight", isFloat}}},
}

// marked is the part by which ComfyUI marks a module.
var marked = part{marker, "comfy_quant", isU8}

// pairs is the layout of bitsandbytes for a kind of 4 bits. Only the state tells the kind.
func pairs(name, kind string) *layout {
	return &layout{name: name, methods: []string{bitsAndBytes}, bits: 4, order: &pairOrder,
		lay: layState, scale: scaleElements, need: 4, parts: []part{{values, "", isBytes}, {state, kind, isU8}, {scales, ".absmax", is8OrF32},
			{codebook, ".quant_map", isF32}, {nestedScales, ".nested_absmax", isF32}, {nestedNumbers, ".nested_quant_map", isF32}}}
}
