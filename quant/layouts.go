package quant

var (
	awqOrder  = [8]int{0, 2, 4, 6, 1, 3, 5, 7}
	pairOrder = [8]int{1, 0, 3, 2, 5, 4, 7, 6}
)

// layouts lists all layouts, in the order in which findModule tries them.
var layouts = []*layout{
	{name: "FP8 in blocks", methods: []string{fp8, mxfp8}, bits: 8, numbers: &e4m3Numbers,
		lay: layAlong, scale: scaleTiles, parts: []part{{values, "", is{e4m3}}, {scales, "_scale_inv", isScale}}},
	{name: "FP4 in groups of 32", methods: []string{fp8}, bits: 4, numbers: &e2m1Numbers, group: 32,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "", is{i8}}, {scales, "_scale_inv", isScale}}},
	{name: "FP8 in blocks of 128×128", methods: []string{fp8}, bits: 8, numbers: &e4m3Numbers, group: 128,
		lay: layAlong, scale: scaleTiles, parts: []part{{values, "weight", is{e4m3}}, {scales, "scale", is{e8m0}}}},
	{name: "FP4 in groups of 32", methods: []string{fp8}, bits: 4, numbers: &e2m1Numbers, group: 32,
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", is{i8}}, {scales, "scale", is{e8m0}}}},
	{name: "MXFP8", methods: []string{compressed, modelOpt, mxfp8}, format: "mxfp8-quantized", bits: 8, numbers: &e4m3Numbers, group: 32, unspecified: "the order of its scales",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", is{e4m3}}, {scales, "weight_scale", is{u8, e8m0}}}},
	{name: "MXFP8", methods: []string{modelOpt, mxfp8}, bits: 8, numbers: &e4m3Numbers, group: 32, unspecified: "the order of its scales",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "", is{e4m3}}, {scales, "_weight_scale", is{u8, e8m0}}}},
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
	{name: "NVFP4", methods: []string{modelOpt}, bits: 4, numbers: &e2m1Numbers, group: 16, unspecified: "the order of its values and scales",
		lay: layAlong, scale: scaleGroups, parts: []part{{values, "weight", is{u8}}, {scales, "weight_scale", is{e4m3}}, {factor, "weight_scale_2", is{f32}}}},
	{name: "MXFP4", methods: []string{mxfp4}, bits: 4, numbers: &e2m1Numbers, group: 32, transposed: true,
		lay: layBlocks, scale: scaleDown, parts: []part{{values, "_blocks", is{u8}}, {scales, "_scales", is{u8}}}},
	{name: "AWQ", methods: []string{awq}, sizes: []int{4}, numbers: &unsignedNumbers, order: &awqOrder, transposed: true, unspecified: "how many bits its values have",
		lay: layDown, scale: scaleInputs, parts: []part{{values, "qweight", is{i32}}, {scales, "scales", isFloat}, {zeros, "qzeros", is{i32}}}},
	{name: "GPTQ", methods: []string{gptq}, sizes: []int{2, 3, 4, 8}, numbers: &unsignedNumbers, transposed: true, unspecified: "how many bits its values have",
		lay: layAlong, scale: scaleInputs, need: 3, parts: []part{{values, "qweight", is{i32}}, {scales, "scales", isFloat}, {zeros, "qzeros", is{i32}}, {index, "g_idx", is{i32}}}},
	pairs("NF4", ".quant_state.bitsandbytes__nf4"),
	pairs("FP4", ".quant_state.bitsandbytes__fp4"),
	{name: "INT8", methods: []string{bitsAndBytes}, bits: 8, numbers: &signedNumbers, constant: 0.007874015718698502, // 1/127 in float32; bitsandbytes multiplies by it
		lay: layAlong, scale: scaleRows, need: 2, parts: []part{{values, "weight", is{i8}}, {scales, "SCB", is{f32}}, {order, "weight_format", is{u8}}}},
	{name: "affine integers", methods: []string{mlx}, sizes: []int{2, 3, 4, 5, 6, 8}, numbers: &unsignedNumbers, unspecified: "how many bits its values have",
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
	{name: "scaled FP8", methods: []string{comfy}, bits: 8, numbers: &e4m3Numbers, // without a marker
		lay: layAlong, scale: scaleDescribed, parts: []part{{values, "weight", is{e4m3}}, {scales, "scale_weight", isFloat}}},
}

// marked is the part that holds the marker of a module in layouts of ComfyUI.
var marked = part{marker, "comfy_quant", is{u8}}

// pairs returns the layout of bitsandbytes for one kind of 4-bit codes. kind is the suffix of the
// tensor that contains the state: only this suffix distinguishes the two kinds.
func pairs(name, kind string) *layout {
	return &layout{name: name, methods: []string{bitsAndBytes}, bits: 4, order: &pairOrder,
		lay: layState, scale: scaleElements, need: 4, parts: []part{{values, "", is{u8, bf16, f16, f32}}, {state, kind, is{u8}}, {scales, ".absmax", is{u8, f32}},
			{codebook, ".quant_map", is{f32}}, {nestedScales, ".nested_absmax", is{f32}}, {nestedNumbers, ".nested_quant_map", is{f32}}}}
}

// formatsOf returns the formats of all layouts that belong to a method.
func formatsOf(method string) (formats []string) {
	for _, l := range layouts {
		if l.methods[0] == method && l.format != "" {
			formats = append(formats, l.format)
		}
	}
	return formats
}

// parseConfig calls readConfig with the func formatsOf, because config.go must not refer to this
// file: both would then belong to a circle of more files than internal/circles_test.go allows.
func parseConfig(text []byte) (*config, error) { return readConfig(text, formatsOf) }
