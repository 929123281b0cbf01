package quant

import "github.com/gosafetensors/safetensors"

// A layout is a way to store a quantised tensor as several tensors. Their names are
// those of a module and a suffix each.
type layout struct {
	name    string   // for people
	methods []string // the values of quant_method that have it
	format  string   // in a group of compressed-tensors
	parts   []part   // the first has the values, the second what scales them; these two recognize the layout
	element element
	packing packing
	scaling scaling
	group   int // elements of a group; 0: the config says it

	transposed bool    // the result has the lines of the values as columns
	constant   float32 // multiplies everything in the end, unless it is 0
}

// A part is one of the tensors of a layout.
type part struct {
	role     role
	suffix   string
	dtypes   []safetensors.DType
	optional bool
}

type role uint8

const (
	values        role = iota
	scales             // multiply the values
	zeros              // are subtracted before that
	biases             // are added after it
	index              // group of each input column
	shape              // of the result
	divisor            // of the scales
	factor             // of the scales
	numbers            // number of each code
	state              // JSON
	nestedScales       // of the scales
	nestedNumbers      // number of each code of the scales
	order              // of the elements: 0 for row by row
)

// An element is what a code stands for.
type element uint8

const (
	e4m3     element = iota // F8_E4M3
	e2m1                    // F4
	signed                  // I8
	offset                  // an integer, stored with half of the range added
	unsigned                // an integer
	mapped                  // an entry of the table that the layout has
)

// A packing is where the codes are.
type packing uint8

const (
	along    packing = iota // along the columns, low bits first
	down                    // down the rows, in words of 32 bits
	permuted                // along the columns, eight in a word in the order of awqOrder
	pairs                   // along all elements, the first of a pair in the high bits
	blocks                  // along the last two dimensions
)

// A scaling is what part of the values one scale is for.
type scaling uint8

const (
	rows      scaling = iota // a row
	tiles                    // a block of the config
	groups                   // a group of adjacent columns
	inputs                   // a group of rows, in each column
	described                // what the config says, else what shapes say
	elements                 // a group of adjacent elements, across rows
)

var (
	awqOrder  = [8]int{0, 2, 4, 6, 1, 3, 5, 7}
	pairOrder = [8]int{1, 0, 3, 2, 5, 4, 7, 6}
)

// Sets of dtypes.
var (
	isE4M3   = []safetensors.DType{safetensors.F8_E4M3}
	isE8M0   = []safetensors.DType{safetensors.F8_E8M0}
	isU8     = []safetensors.DType{safetensors.U8}
	isI8     = []safetensors.DType{safetensors.I8}
	isI32    = []safetensors.DType{safetensors.I32}
	isU32    = []safetensors.DType{safetensors.U32}
	isInt    = []safetensors.DType{safetensors.I64, safetensors.I32}
	isF32    = []safetensors.DType{safetensors.F32}
	isFloat  = []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32}
	isScale  = []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32, safetensors.F8_E8M0, safetensors.U8}
	is8OrF32 = []safetensors.DType{safetensors.U8, safetensors.F32}
)

// layouts are tried in order. Where the same tensors may mean two of them, shapes or
// the config decide: see module.fits.
var layouts = []layout{
	{
		name: "FP8 in blocks", methods: []string{fp8},
		parts:   []part{{values, "weight", isE4M3, false}, {scales, "weight_scale_inv", isScale, false}},
		element: e4m3, scaling: tiles,
	},
	{
		name: "FP8 in blocks of 128×128", methods: []string{fp8},
		parts:   []part{{values, "weight", isE4M3, false}, {scales, "scale", isE8M0, false}},
		element: e4m3, scaling: tiles, group: 128,
	},
	{
		name: "FP4 in groups of 32", methods: []string{fp8},
		parts:   []part{{values, "weight", isI8, false}, {scales, "scale", isE8M0, false}},
		element: e2m1, scaling: groups, group: 32,
	},
	{
		name: "MXFP8", methods: []string{compressed}, format: "mxfp8-quantized",
		parts:   []part{{values, "weight", isE4M3, false}, {scales, "weight_scale", isU8, false}},
		element: e4m3, scaling: groups, group: 32,
	},
	{
		name: "FP8", methods: []string{compressed, fp8, fbgemm, modelOpt}, format: "float-quantized",
		parts:   []part{{values, "weight", isE4M3, false}, {scales, "weight_scale", isFloat, false}},
		element: e4m3, scaling: described,
	},
	{
		name: "INT8", methods: []string{compressed}, format: "int-quantized",
		parts:   []part{{values, "weight", isI8, false}, {scales, "weight_scale", isFloat, false}},
		element: signed, scaling: described,
	},
	{
		name: "packed integers", methods: []string{compressed}, format: "pack-quantized",
		parts: []part{
			{values, "weight_packed", isI32, false}, {scales, "weight_scale", isFloat, false}, {shape, "weight_shape", isInt, false},
			{zeros, "weight_zero_point", isI32, true}, {index, "weight_g_idx", isI32, true},
		},
		element: offset, scaling: described,
	},
	{
		name: "NVFP4", methods: []string{compressed}, format: "nvfp4-pack-quantized",
		parts: []part{
			{values, "weight_packed", isU8, false}, {scales, "weight_scale", isE4M3, false}, {divisor, "weight_global_scale", isF32, false},
		},
		element: e2m1, scaling: groups, group: 16,
	},
	{
		name: "MXFP4", methods: []string{compressed}, format: "mxfp4-pack-quantized",
		parts:   []part{{values, "weight_packed", isU8, false}, {scales, "weight_scale", isU8, false}},
		element: e2m1, scaling: groups, group: 32,
	},
	{
		name: "NVFP4", methods: []string{modelOpt},
		parts: []part{
			{values, "weight", isU8, false}, {scales, "weight_scale", isE4M3, false}, {factor, "weight_scale_2", isF32, false},
		},
		element: e2m1, scaling: groups, group: 16,
	},
	{
		name: "MXFP4", methods: []string{mxfp4},
		parts:   []part{{values, "_blocks", isU8, false}, {scales, "_scales", isU8, false}},
		element: e2m1, packing: blocks, scaling: groups, group: 32, transposed: true,
	},
	{
		name: "AWQ", methods: []string{awq},
		parts: []part{
			{values, "qweight", isI32, false}, {scales, "scales", isFloat, false}, {zeros, "qzeros", isI32, false},
		},
		element: unsigned, packing: permuted, scaling: inputs, transposed: true,
	},
	{
		name: "GPTQ", methods: []string{gptq},
		parts: []part{
			{values, "qweight", isI32, false}, {scales, "scales", isFloat, false}, {zeros, "qzeros", isI32, false}, {index, "g_idx", isI32, true},
		},
		element: unsigned, packing: down, scaling: inputs, transposed: true,
	},
	nf4("nf4"), nf4("fp4"),
	{
		name: "INT8", methods: []string{bitsAndBytes},
		parts:   []part{{values, "weight", isI8, false}, {scales, "SCB", isF32, false}, {order, "weight_format", isU8, true}},
		element: signed, scaling: rows, constant: 0.007874015718698502, // 1/127, as the package multiplies by it
	},
	{
		name: "affine integers", methods: []string{mlx},
		parts: []part{
			{values, "weight", isU32, false}, {scales, "scales", isFloat, false}, {biases, "biases", isFloat, false},
		},
		element: unsigned, scaling: groups,
	},
}

// nf4 is the layout of bitsandbytes for a kind of 4 bits.
func nf4(kind string) layout {
	return layout{
		name: map[string]string{"nf4": "NF4", "fp4": "FP4"}[kind], methods: []string{bitsAndBytes},
		parts: []part{
			{values, "weight", isU8, false}, {scales, "weight.absmax", is8OrF32, false}, {state, "weight.quant_state.bitsandbytes__" + kind, isU8, false},
			{numbers, "weight.quant_map", isF32, false},
			{nestedScales, "weight.nested_absmax", isF32, true}, {nestedNumbers, "weight.nested_quant_map", isF32, true},
		},
		element: mapped, packing: pairs, scaling: elements,
	}
}

// also are the suffixes of tensors that a quantised module has for its inputs, or an
// attention for its cache.
var also = []string{"input_scale", "input_scale_ub", "input_global_scale", "input_zero_point", "activation_scale", "output_scale", "k_scale", "v_scale", "q_scale", "prob_scale"}
