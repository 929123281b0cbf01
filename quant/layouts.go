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

// Dtypes, and sets of them.
const (
	bf16, f16, f32   = safetensors.BF16, safetensors.F16, safetensors.F32
	e4m3, e5m2, e8m0 = safetensors.F8_E4M3, safetensors.F8_E5M2, safetensors.F8_E8M0
	i8, i32, i64     = safetensors.I8, safetensors.I32, safetensors.I64
	u8, u32          = safetensors.U8, safetensors.U32
)

type is = []safetensors.DType

var isFloat, isScale = is{bf16, f16, f32}, is{bf16, f16, f32, e8m0, u8}

// layouts are tried in order.
var layouts = []*layout{
	{name: "FP8 in blocks", methods: []string{fp8, mxfp8}, bits: 8, numbers: &e4m3Numbers,
		lay: layAlong, scale: scaleTiles, parts: []part{{values, "", is{e4m3}}, {scales, "_scale_inv", isScale}}},
	{name: "FP4 in groups of 32", methods: []string{fp8}, bits: 4, numbers: &e2m1Numbers, group: 32,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "", is{i8}}, {scales, "_scale_inv", isScale}}},
	{name: "FP8 in blocks of 128×128", methods: []string{fp8}, bits: 8, numbers: &e4m3Numbers, group: 128,
		lay: layAlong, scale: scaleTiles, parts: []part{{values, "weight", is{e4m3}}, {scales, "scale", is{e8m0}}}},
	{name: "FP4 in groups of 32", methods: []string{fp8}, bits: 4, numbers: &e2m1Numbers, group: 32,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", is{i8}}, {scales, "scale", is{e8m0}}}},
	{name: "MXFP8", methods: []string{compressed}, format: "mxfp8-quantized", bits: 8, numbers: &e4m3Numbers, group: 32, unsaid: "the order of its scales",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", is{e4m3}}, {scales, "weight_scale", is{u8}}}},
	{name: "FP8", methods: []string{compressed, fp8, fbgemm, modelOpt}, format: "float-quantized", bits: 8, numbers: &e4m3Numbers,
		lay: layAlong, scale: scaleDescribed, parts: []part{{values, "weight", is{e4m3}}, {scales, "weight_scale", isFloat}}},
	{name: "INT8", methods: []string{compressed}, format: "int-quantized", bits: 8, numbers: &signedNumbers,
		lay: layAlong, scale: scaleDescribed, need: 2, parts: []part{{values, "weight", is{i8}}, {scales, "weight_scale", isFloat}, {zeros, "weight_zero_point", is{i8}}}},
	{name: "packed integers", methods: []string{compressed}, format: "pack-quantized", sizes: []int{1, 2, 3, 4, 5, 6, 7, 8}, numbers: &offsetNumbers,
		lay: layWords, scale: scaleDescribed, need: 3, parts: []part{{values, "weight_packed", is{i32}}, {scales, "weight_scale", isFloat}, {shape, "weight_shape", is{i64, i32}},
			{zeros, "weight_zero_point", is{i32, i8}}, {index, "weight_g_idx", is{i32}}}},
	{name: "NVFP4", methods: []string{compressed}, format: "nvfp4-pack-quantized", bits: 4, numbers: &e2m1Numbers, group: 16,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight_packed", is{u8}}, {scales, "weight_scale", is{e4m3}}, {divisor, "weight_global_scale", is{f32}}}},
	{name: "MXFP4", methods: []string{compressed}, format: "mxfp4-pack-quantized", bits: 4, numbers: &e2m1Numbers, group: 32,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight_packed", is{u8}}, {scales, "weight_scale", is{u8}}}},
	{name: "NVFP4", methods: []string{modelOpt}, bits: 4, numbers: &e2m1Numbers, group: 16, unsaid: "the order of its values and scales",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", is{u8}}, {scales, "weight_scale", is{e4m3}}, {factor, "weight_scale_2", is{f32}}}},
	{name: "MXFP4", methods: []string{mxfp4}, bits: 4, numbers: &e2m1Numbers, group: 32, transposed: true,
		lay: layBlocks, scale: scaleDown, parts: []part{{values, "_blocks", is{u8}}, {scales, "_scales", is{u8}}}},
	{name: "AWQ", methods: []string{awq}, sizes: []int{4}, numbers: &unsignedNumbers, order: &awqOrder, transposed: true, unsaid: "the bits of its codes",
		lay: layDown, scale: scaleInputs, parts: []part{{values, "qweight", is{i32}}, {scales, "scales", isFloat}, {zeros, "qzeros", is{i32}}}},
	{name: "GPTQ", methods: []string{gptq}, sizes: []int{2, 3, 4, 8}, numbers: &unsignedNumbers, transposed: true, unsaid: "the bits of its codes",
		lay: layAlong, scale: scaleInputs, need: 3, parts: []part{{values, "qweight", is{i32}}, {scales, "scales", isFloat}, {zeros, "qzeros", is{i32}}, {index, "g_idx", is{i32}}}},
	pairs("NF4", ".quant_state.bitsandbytes__nf4"),
	pairs("FP4", ".quant_state.bitsandbytes__fp4"),
	{name: "INT8", methods: []string{bitsAndBytes}, bits: 8, numbers: &signedNumbers, constant: 0.007874015718698502, // 1/127, as the package multiplies by it
		lay: layAlong, scale: scaleRows, need: 2, parts: []part{{values, "weight", is{i8}}, {scales, "SCB", is{f32}}, {order, "weight_format", is{u8}}}},
	{name: "affine integers", methods: []string{mlx}, sizes: []int{2, 3, 4, 5, 6, 8}, numbers: &unsignedNumbers, unsaid: "the bits of its codes",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", is{u32}}, {scales, "scales", isFloat}, {biases, "biases", isFloat}}},
	{name: "scaled FP8", methods: []string{comfy}, format: "float8_e4m3fn", bits: 8, numbers: &e4m3Numbers,
		lay: layAlong, scale: scaleDescribed, need: 2, parts: []part{{values, "weight", is{e4m3}}, {scales, "weight_scale", isFloat}, marked}},
	{name: "scaled FP8", methods: []string{comfy}, format: "float8_e5m2", bits: 8, numbers: &e5m2Numbers,
		lay: layAlong, scale: scaleDescribed, need: 2, parts: []part{{values, "weight", is{e5m2}}, {scales, "weight_scale", isFloat}, marked}},
	{name: "INT8", methods: []string{comfy}, format: "int8_tensorwise", bits: 8, numbers: &signedNumbers,
		lay: layAlong, scale: scaleDescribed, need: 2, parts: []part{{values, "weight", is{i8}}, {scales, "weight_scale", isFloat}, marked}},
	{name: "NVFP4", methods: []string{comfy}, format: "nvfp4", bits: 4, numbers: &e2m1Numbers, order: &pairOrder, group: 16,
		lay: layAlong, scale: scaleBlocked, need: 3, parts: []part{{values, "weight", is{u8}}, {scales, "weight_scale", is{e4m3}}, {factor, "weight_scale_2", is{f32}}, marked}},
	{name: "MXFP8", methods: []string{comfy}, format: "mxfp8", bits: 8, numbers: &e4m3Numbers, group: 32,
		lay: layAlong, scale: scaleBlocked, need: 2, parts: []part{{values, "weight", is{e4m3}}, {scales, "weight_scale", is{e8m0, u8}}, marked}},
	{name: "scaled FP8", methods: []string{comfy}, bits: 8, numbers: &e4m3Numbers, // without markers
		lay: layAlong, scale: scaleDescribed, parts: []part{{values, "weight", is{e4m3}}, {scales, "scale_weight", isFloat}}},
}

// marked is the part by which ComfyUI marks a module.
var marked = part{marker, "comfy_quant", is{u8}}

// pairs is the layout of bitsandbytes for a kind of 4 bits. Only the state tells the kind.
func pairs(name, kind string) *layout {
	return &layout{name: name, methods: []string{bitsAndBytes}, bits: 4, order: &pairOrder,
		lay: layState, scale: scaleElements, need: 4, parts: []part{{values, "", is{u8, bf16, f16, f32}}, {state, kind, is{u8}}, {scales, ".absmax", is{u8, f32}},
			{codebook, ".quant_map", is{f32}}, {nestedScales, ".nested_absmax", is{f32}}, {nestedNumbers, ".nested_quant_map", is{f32}}}}
}
