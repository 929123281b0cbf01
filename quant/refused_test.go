package quant_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/stretchr/testify/require"
)

// TestRefused: each rule of the layouts has an error that names the tensor and the rule.
func TestRefused(t *testing.T) {
	group16 := compressedConfig("nvfp4-pack-quantized", object{"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})
	packed := compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8})
	gptq := method("gptq", object{"bits": 4, "group_size": 32})
	nf4 := func(state string) []change {
		return []change{zeroed("a.weight", safetensors.U8, 8, 1), zeroed("a.weight.absmax", safetensors.F32, 1),
			zeroed("a.weight.quant_map", safetensors.F32, 16), bytesOf("a.weight.quant_state.bitsandbytes__nf4", state)}
	}
	group := func(format string, weights object) object {
		return object{"format": format, "config_groups": object{"g": object{"targets": []string{"Linear"}, "weights": weights}}}
	}
	ordered := func(by any) string {
		return compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8, "actorder": by})
	}
	words := []change{zeroed("a.qweight", safetensors.I32, 8, 32), zeroed("a.qzeros", safetensors.I32, 2, 4), zeroed("a.scales", safetensors.F16, 2, 32)}
	integers := []change{zeroed("a.weight_packed", safetensors.I32, 2, 2), zeroed("a.weight_scale", safetensors.F32, 2, 2), numbers("a.weight_shape", 2, 16)}
	marked := func(marker string) []change {
		return []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32), bytesOf("a.comfy_quant", marker)}
	}
	long := strings.Repeat("x", 5000)
	for _, c := range []struct {
		title, config string
		changes       []change
		want          string // text of the error; "" if the checkpoint is accepted
	}{
		{"unknown method whose bits are no integer", method("exl2", object{"bits": 4.25}), nil, `quant_method "exl2" is not one of`},
		{"bits that are no integer", method("gptq", object{"bits": 4.25}), nil, `cannot unmarshal number 4.25`},
		{"unknown format", compressedConfig("marlin-24", object{"num_bits": 4}), nil, `format "marlin-24", not dense or`},
		{"unknown algorithm", text(object{"quantization": object{"quant_algo": "NVFP4_AWQ"}}), nil, `quant_algo "NVFP4_AWQ", not NVFP4 or`},
		{"smoothed weights", text(object{"quantization": object{"quant_algo": "MIXED_PRECISION"}}), []change{zeroed("a.weight", safetensors.U8, 2, 8), zeroed("a.weight_scale", safetensors.F8_E4M3, 2, 1),
			zeroed("a.weight_scale_2", safetensors.F32), zeroed("a.pre_quant_scale", safetensors.BF16, 16)}, `tensor "a.pre_quant_scale": BF16 [16] next to "a.weight" (NVFP4): unsupported operation`},
		{"joined experts", method("modelopt", object{"quant_algo": "FP8"}), []change{zeroed("experts.down_proj", safetensors.F8_E4M3, 2, 2, 2), zeroed("experts.down_proj_weight_scale", safetensors.F32)}, `tensor "experts.down_proj": no layout has F8_E4M3 [2,2,2] with scales F32 [] under such names: unsupported operation`},
		{"joined experts with a scale for all", method("fp8", object{}), []change{zeroed("experts.down_proj", safetensors.F8_E4M3, 2, 2, 2), zeroed("experts.down_proj_scale_inv", safetensors.F32)},
			`tensor "experts.down_proj_scale_inv": FP8 in blocks: its shape is [], but "experts.down_proj" needs [2,1,1]`},
		{"joined experts of FBGEMM", method("fbgemm_fp8", object{}), []change{zeroed("experts.down_proj", safetensors.F8_E4M3, 2, 2, 2), zeroed("experts.down_proj_scale", safetensors.F32, 2, 2, 1)},
			`tensor "experts.down_proj": no layout has`},
		{"joined experts without config", "{}", []change{zeroed("experts.down_proj", safetensors.F8_E4M3, 2, 2, 2), zeroed("experts.down_proj_scale", safetensors.F32, 2, 2, 1)},
			`tensor "experts.down_proj": no layout has`},
		{"packing of AutoRound", method("auto-round", object{"packing_format": "auto_round:llm_compressor"}), nil, `packing_format "auto_round:llm_compressor" of AutoRound is neither the format of GPTQ nor the format of AWQ`},
		{"AutoRound's floats", method("auto-round", object{"packing_format": "auto_round", "data_type": "mx_int"}), nil, `the quantization_config: data_type "mx_int", act_bits 0: unsupported operation`},
		{"AutoRound's inputs", method("auto-round", object{"packing_format": "auto_round", "act_bits": 1}), nil, `the quantization_config: data_type "", act_bits 1: unsupported operation`},
		{"bits of AutoRound's modules", method("auto-round", object{"packing_format": "auto_round", "extra_config": object{"a": object{"bits": "four"}}}), nil, `json: cannot unmarshal string`},
		{"torchao's tensors", "{}", []change{zeroed("a._weight_qdata", safetensors.I8, 2, 2), zeroed("a._weight_scale", safetensors.F32, 2)}, "torchao"},
		{"GPTQ for other kernels", method("gptq", object{"format": "marlin"}), nil, `format "marlin", not gptq or gptq_v2`},
		{"AWQ in another format", method("awq", object{"format": "gemv"}), nil, `format "gemv", not gemm`},
		{"two formats: transformers takes the first, gptqmodel the second", method("gptq", object{"checkpoint_format": "gptq", "format": "gptq_v2"}), nil, `checkpoint_format "gptq", but format "gptq_v2"`},
		{"no method", text(object{"quantization": object{"load_in_8bit": false}}), nil, `quant_method "" is not one of`},
		{"planar GPTQ", method("gptq", object{"checkpoint_format": "gptq_p"}), nil, `format "gptq_p", not gptq`},
		{"group size 0", method("gptq", object{"group_size": 0}), nil, "group_size is 0"},
		{"block of one number", method("fp8", object{"weight_block_size": []int{128}}), nil, "weight_block_size: [128] is not two positive numbers"},
		{"block size 0", method("fp8", object{"weight_block_size": []int{0, 128}}), nil, "weight_block_size: [0,128]"},
		{"mode", text(object{"quantization": object{"bits": 4, "group_size": 32, "mode": "mxfp4"}}), nil, `mode "mxfp4", not affine`},

		{"scale without weight", "{}", []change{zeroed("a.weight_scale_inv", safetensors.F32, 1, 1)}, `tensor "a.weight_scale_inv": F32 [1,1] belongs to a quantised tensor, but there is no tensor "a.weight"`},
		{"weight without scale", method("fp8", object{}), []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2)}, `tensor "a.weight": F8_E4M3 [2,2] belongs to a quantised tensor, but its scales, such as "a.weight_scale_inv", are missing`},
		{"packed without scale", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 2), zeroed("a.weight_shape", safetensors.I64, 2)}, `tensor "a.weight_packed"`},
		{"zero point without weight", packed, []change{zeroed("a.weight_zero_point", safetensors.I32, 2, 2)}, `tensor "a.weight_zero_point"`},
		{"scale of another dtype", method("fp8", object{}), []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale_inv", safetensors.I32, 1, 1)}, `tensor "a.weight`},
		{"method of others", gptq, []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale_inv", safetensors.F32, 1, 1)}, `tensor "a.weight": FP8 in blocks: quant_method "gptq" has no such tensors`},

		{"grid of blocks", method("fp8", object{"weight_block_size": []int{128, 128}}), []change{zeroed("a.weight", safetensors.F8_E4M3, 129, 2), zeroed("a.weight_scale_inv", safetensors.F32, 1, 1)}, `tensor "a.weight_scale_inv": FP8 in blocks: its shape is [1,1], but "a.weight" needs [2,1]`},
		{"rank", method("fp8", object{}), []change{zeroed("a.weight", safetensors.F8_E4M3, 2), zeroed("a.weight_scale_inv", safetensors.F32, 1)}, `tensor "a.weight": FP8 in blocks: its shape [2] is not that of a matrix`},
		{"no global scale", group16, []change{zeroed("a.weight_packed", safetensors.U8, 2, 8), zeroed("a.weight_scale", safetensors.F8_E4M3, 2, 1)}, `"a.weight_global_scale" is missing`},
		{"no scale of scales", text(object{"quantization": object{"quant_algo": "NVFP4"}}), []change{zeroed("a.weight", safetensors.U8, 2, 8), zeroed("a.weight_scale", safetensors.F8_E4M3, 2, 1)}, `"a.weight_scale_2" is missing`},
		{"two global scales", group16, []change{zeroed("a.weight_packed", safetensors.U8, 2, 8), zeroed("a.weight_scale", safetensors.F8_E4M3, 2, 1), zeroed("a.weight_global_scale", safetensors.F32, 2)}, `F32 [2] does not have 1 element`},
		{"half a group", group16, []change{zeroed("a.weight_packed", safetensors.U8, 2, 4), zeroed("a.weight_scale", safetensors.F8_E4M3, 2, 1), zeroed("a.weight_global_scale", safetensors.F32, 1)}, `8 columns are not whole groups of 16`},
		{"shape beyond the words", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 16)}, `tensor "a.weight_shape": packed integers: [2,16] at 4 bits does not fill 2 rows of 1 words`},
		{"one scale of packed integers", compressedConfig("pack-quantized", object{"num_bits": 4}), []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 1, 1), numbers("a.weight_shape", 2, 8)},
			`tensor "a.weight_scale": packed integers: its shape is [1,1], but "a.weight_packed" needs [2,1]`},
		{"more scales than columns", compressedConfig("pack-quantized", object{"num_bits": 4}), []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 16), numbers("a.weight_shape", 2, 8)},
			`tensor "a.weight_scale": packed integers: its shape is [2,16], but "a.weight_packed" needs [2,8]`},
		{"MLX without groups", text(object{"quantization": object{"bits": 4, "group_size": nil}}), []change{zeroed("a.weight", safetensors.U32, 2, 4), zeroed("a.scales", safetensors.F16, 2, 1), zeroed("a.biases", safetensors.F16, 2, 1)},
			`tensor "a.scales": affine integers: no config.json specifies the size of its groups`},
		{"negative shape", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, -8)}, `tensor "a.weight_shape"`},
		{"no shape", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1)}, `"a.weight_shape" is missing`},
		{"no zero points", compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "channel", "symmetric": false}),
			[]change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 8)}, "zero points are missing"},
		{"group size 0 of a group", compressedConfig("pack-quantized", object{"num_bits": 4, "strategy": "group", "group_size": 0}), nil, "strategy group with"},
		{"short index", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 8), zeroed("a.weight_g_idx", safetensors.I32, 7)}, `tensor "a.weight_g_idx": packed integers: its shape is [7]`},
		{"GPTQ without config", "{}", []change{zeroed("a.qweight", safetensors.I32, 4, 32), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32)}, "no config.json specifies"},
		{"GPTQ of no bits", method("gptq", object{"group_size": 32}), []change{zeroed("a.qweight", safetensors.I32, 4, 32), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32)}, "no config.json specifies how many bits its values have"},
		{"GPTQ of 5 bits", method("gptq", object{"bits": 5, "group_size": 32}), []change{zeroed("a.qweight", safetensors.I32, 5, 32), zeroed("a.qzeros", safetensors.I32, 1, 5), zeroed("a.scales", safetensors.F16, 1, 32)}, "codes of 5 bits"},
		{"zeros of another grid", gptq, []change{zeroed("a.qweight", safetensors.I32, 8, 32), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 2, 32)}, `tensor "a.qzeros"`},
		{"no quant_map", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[4,4]}`), without("a.weight.quant_map")), `"a.weight.quant_map" is missing`},
		{"no absmax", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[4,4]}`), without("a.weight.absmax")), `"a.weight.absmax" is missing`},
		{"state of another shape", method("bitsandbytes", object{}), nf4(`{"blocksize":64,"shape":[5,4]}`), `shape [5,4] does not fill 8 bytes`},
		{"state that overflows", method("bitsandbytes", object{}), nf4(`{"blocksize":64,"shape":[1073741824,1073741824,16]}`), `does not fill 8 bytes`},
		{"state of nothing", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[0]}`), zeroed("a.weight", safetensors.U8, 0, 1)), `shape [0] does not fill 0 bytes`},
		{"absmax alone", "{}", []change{zeroed("a.weight.absmax", safetensors.F32, 1)}, `tensor "a.weight.absmax": F32 [1] belongs to a quantised tensor`},
		{"blocksize 0", method("bitsandbytes", object{}), nf4(`{"blocksize":0,"shape":[4,4]}`), `blocksize is 0`},
		{"long state", method("bitsandbytes", object{}), nf4(strings.Repeat(" ", 1<<16+1)), `quant_state.bitsandbytes__nf4": NF4: U8 [65537] is not JSON of at most 65536 bytes`},
		{"broken state", method("bitsandbytes", object{}), nf4(`{"blocksize"`), `quant_state`},
		{"INT8 in another order", method("bitsandbytes", object{}), []change{zeroed("a.weight", safetensors.I8, 2, 32), zeroed("a.SCB", safetensors.F32, 2), func(m map[string]safetensors.Tensor) {
			m["a.weight_format"], _ = safetensors.NewTensor(safetensors.U8, nil, []byte{2})
		}}, `tensor "a.weight_format": INT8: elements in order 2, not row by row (0)`},
		{"two orders", method("bitsandbytes", object{}), []change{zeroed("a.weight", safetensors.I8, 2, 32), zeroed("a.SCB", safetensors.F32, 2), zeroed("a.weight_format", safetensors.U8, 2)}, `U8 [2] does not have 1 element`},
		{"values without a dimension", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[1]}`), zeroed("a.weight", safetensors.BF16)), `tensor "a.weight": NF4: casting BF16 [] to U8: `},
		{"scales without an offset", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[4,4],"nested_blocksize":256}`), zeroed("a.weight.absmax", safetensors.U8, 1),
			zeroed("a.weight.nested_absmax", safetensors.F32, 1), zeroed("a.weight.nested_quant_map", safetensors.F32, 256)), `nested_offset is missing`},
		{"a state without a shape", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64}`), zeroed("a.weight", safetensors.U8, 1, 1)), `shape [] does not fill 1 byte`},
		{"scales of floats", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[4,4]}`), zeroed("a.weight.nested_absmax", safetensors.F32, 1)), `tensor "a.weight.absmax": NF4: F32 [1,1], though the scales are quantised themselves`},
		{"FP4 called NF4", method("bitsandbytes", object{}), nf4(`{"blocksize":64,"shape":[4,4],"quant_type":"fp4"}`), `tensor "a.weight.quant_state.bitsandbytes__nf4": NF4: quant_type is fp4`},
		{"scales of scales", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[4,4],"nested_blocksize":256}`), zeroed("a.weight.absmax", safetensors.U8, 1)), `"a.weight.nested_absmax" is missing`},
		{"weight and packed weight", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 8), zeroed("a.weight", safetensors.BF16, 2, 8)}, `tensor "a.weight": BF16 [2,8] next to "a.weight_packed" (packed integers): unsupported operation`},
		{"two layouts of a module", "{}", []change{
			zeroed("a.weight_packed", safetensors.U8, 2, 16), zeroed("a.weight_scale", safetensors.U8, 2, 1),
			zeroed("a.weight", safetensors.F8_E4M3, 2, 32), zeroed("a.weight_scale_inv", safetensors.F32, 1, 1)}, `tensor "a.weight": the result of`},
		{"blocks of another size", method("mxfp4", object{}), []change{zeroed("a_blocks", safetensors.U8, 2, 2, 8), zeroed("a_scales", safetensors.U8, 2, 2)}, `tensor "a_blocks": MXFP4: its shape [2,2,8] is not that of blocks of 16 bytes`},
		{"blocks without scales", method("mxfp4", object{}), []change{zeroed("a_blocks", safetensors.U8, 2, 2, 16)}, `its scales, such as "a_scales", are missing`},
		{"AWQ of three dimensions", method("awq", object{"group_size": 8}), []change{zeroed("a.qweight", safetensors.I32, 2, 8, 1), zeroed("a.scales", safetensors.F16, 2, 1, 8), zeroed("a.qzeros", safetensors.I32, 1, 1)}, `tensor "a.qweight": AWQ: its shape [2,8,1] is not that of a matrix`},
		{"codes that do not fill words", method("gptq", object{"bits": 3, "group_size": 32}), []change{zeroed("a.qweight", safetensors.I32, 4, 32), zeroed("a.qzeros", safetensors.I32, 1, 3), zeroed("a.scales", safetensors.F16, 1, 32)}, `4 elements of I32 do not hold whole codes of 3 bits`},
		{"codes that do not fill bytes", text(object{"quantization": object{"bits": 3, "group_size": 32}}), []change{zeroed("a.weight", safetensors.U32, 2, 4), zeroed("a.scales", safetensors.F16, 2, 1), zeroed("a.biases", safetensors.F16, 2, 1)}, `4 elements of U32 do not hold whole codes of 3 bits`},
		{"bits that shapes leave open", "{}", []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 4)}, `no config.json specifies`},
		{"shape of three", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 8, 1)}, `tensor "a.weight_shape": packed integers: I32 [3] does not hold the two dimensions of a matrix`},
		{"index of another dtype", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 8), zeroed("a.weight_g_idx", safetensors.I64, 8)}, `tensor "a.weight_g_idx": packed integers: I64 [8], not one of [I32]`},
		{"half a group of integers", packed, []change{zeroed("a.weight_packed", safetensors.I32, 2, 2), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 12)}, `12 columns are not whole groups of 8`},
		{"too few zero points", packed, []change{zeroed("a.weight_packed", safetensors.I32, 9, 1), zeroed("a.weight_scale", safetensors.F32, 9, 1), numbers("a.weight_shape", 9, 8), zeroed("a.weight_zero_point", safetensors.I32, 1, 1)}, `tensor "a.weight_zero_point": packed integers: its shape is [1,1], but "a.weight_packed" needs [2,1]`},
		{"strategy", compressedConfig("float-quantized", object{"strategy": "row"}), []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32, 2, 1)}, `strategy "row" of weights`},
		{"codes of 9 bits", compressedConfig("pack-quantized", object{"num_bits": 9}), nil, `"g": weights: num_bits is 9, group_size 0`},
		{"negative block", compressedConfig("float-quantized", object{"strategy": "block", "block_structure": []int{-1, 2}}), nil, `"g": weights: block_structure: [-1,2] is not two positive numbers`},
		{"many expressions", method("fp8", object{"ignored_layers": slices.Repeat([]string{"re:.*"}, 1<<12)}), nil, "its patterns, with repeats written out, take more than 131072 bytes"},
		{"expressions with many repeats", method("fp8", object{"ignored_layers": slices.Repeat([]string{"re:(.?){1000}", "re:x{999})|(?:x{999}"}, 50)}), nil, "take more than 131072 bytes"},
		{"an expression with many repeats", method("fp8", object{"ignored_layers": []string{"re:" + strings.Repeat("x{1000}", 200)}}), nil, "take more than 131072 bytes"},
		{"many expressions in two groups", method("compressed-tensors", object{"config_groups": object{
			"a": object{"targets": slices.Repeat([]string{"re:.*"}, 1<<11)}, "b": object{"targets": slices.Repeat([]string{"re:.*"}, 1<<11)}}}), nil, `"b": its patterns, with`},
		{"two groups with a target", method("compressed-tensors", object{"format": "pack-quantized", "config_groups": object{
			"a": object{"targets": []string{"Linear"}, "weights": object{"num_bits": 4}}, "b": object{"targets": []string{"x", "Linear"}, "weights": object{"num_bits": 8}}}}), nil,
			`"b": its target "Linear" is also a target of another group`},
		{"transformed inputs", method("compressed-tensors", object{"transform_config": object{"config_groups": object{"v": object{"type": "hadamard", "apply": []object{
			{"targets": []string{"Linear"}, "location": "weight_input"}, {"targets": []string{"Linear"}, "location": "input", "inverse": true}}}}}}), nil, `transform_config: config_groups: "v": weights for transformed inputs or outputs: unsupported operation`},
		{"AWQ for other kernels", method("awq", object{"bits": 4, "version": "marlin"}), nil, `format "marlin", not gemm`},
		{"bits of a module", text(object{"quantization": object{"bits": 4, "group_size": 32, "a": object{"bits": "four"}}}), nil, `"a": bits: json: cannot unmarshal string`},
		{"mode of a module", text(object{"quantization": object{"bits": 4, "group_size": 32, "a": object{"mode": "nvfp4"}}}), nil, `"a": mode "nvfp4", not affine`},
		{"text_config", `{"text_config":[1]}`, nil, "the config: text_config: "},
		{"config within text_config", `{"text_config":{"quantization_config":{"quant_method":"quark"}}}`, nil, `quant_method "quark" is not one of`},
		{"absmax of another size", method("bitsandbytes", object{}), nf4(`{"blocksize":4,"shape":[4,4]}`), `tensor "a.weight.absmax": NF4: F32 [1] does not have 4 elements`},
		{"nested blocks of nothing", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[4,4]}`), zeroed("a.weight.absmax", safetensors.U8, 1)), `nested_blocksize is 0`},
		{"state of more than a byte", method("bitsandbytes", object{}), append(nf4(`{"blocksize":64,"shape":[5]}`), zeroed("a.weight", safetensors.U8, 1, 1)), `shape [5] does not fill 1 byte`},
		{"state of half the bytes", method("bitsandbytes", object{}), nf4(`{"blocksize":64,"shape":[2,4]}`), `shape [2,4] does not fill 8 bytes`},
		{"MLX without config", "{}", []change{zeroed("a.weight", safetensors.U32, 2, 4), zeroed("a.scales", safetensors.F16, 2, 1), zeroed("a.biases", safetensors.F16, 2, 1)}, "no config.json specifies"},

		// Settings that change the numbers. The error names each.
		{"rotation", method("gptq", object{"bits": 4, "rotation": "hadamard"}), nil, `the quantization_config: rotation: "hadamard": unsupported operation`},
		{"adapter", method("gptq", object{"adapter": object{"rank": 8}}), nil, `adapter: {"rank":8}: unsupported`},
		{"words of 16 bits", method("gptq", object{"pack_dtype": "int16"}), nil, `pack_dtype "int16", not int32`},
		{"key of another method", method("fp8", object{"desc_act": true}), nil, `desc_act: true: unsupported`},
		{"key in other letters", method("gptq", object{"Bits": 8}), nil, `Bits: 8: unsupported`},
		{"dynamic that only Python understands", method("gptq", object{"dynamic": object{"-:(?!a)": object{}}}), nil, `dynamic: "-:(?!a)": an expression that only Python understands`},
		{"dynamic of unknown keys", method("gptq", object{"dynamic": object{"a": object{"rotation": "random"}}}), nil, `dynamic: "a": rotation: "random": unsupported`},
		{"dynamic of a list", method("gptq", object{"dynamic": []int{1}}), nil, `dynamic: [1] is not an object`},
		{"dynamic of strings", method("gptq", object{"dynamic": object{"a": "b"}}), nil, `dynamic: "a": "b" is not an object`},
		{"rotation of AutoRound", method("auto-round", object{"packing_format": "auto_round", "rotation_configs": []int{1}}), nil, `the quantization_config: rotation_configs: [1]: unsupported`},
		{"floats of AutoRound's module", method("auto-round", object{"packing_format": "auto_round", "extra_config": object{"a": object{"data_type": "mx_fp"}}}), nil, `extra_config: "a": data_type "mx_fp"`},
		{"AutoRound's list", method("auto-round", object{"packing_format": "auto_round", "extra_config": []int{1}}), nil, `extra_config: [1] is not an object`},
		{"AutoRound's expression", method("auto-round", object{"packing_format": "auto_round", "extra_config": object{".*a(?!b)": object{"bits": 8}}}), nil, `extra_config: ".*a(?!b)": an expression that only Python`},
		{"sparse weights", method("compressed-tensors", object{"sparsity_config": object{"format": "sparse-24-bitmask"}}), nil, `sparsity_config: format "sparse-24-bitmask", not dense: unsupported`},
		{"sparse experts", method("compressed-tensors", object{"moe_sparsity_config": object{"method": "prune"}}), nil, `moe_sparsity_config: {"method":"prune"}: unsupported`},
		{"key of a group", method("compressed-tensors", object{"config_groups": object{"g": object{"low_rank": 8}}}), nil, `config_groups: "g": low_rank: 8: unsupported`},
		{"key of weights", method("compressed-tensors", group("pack-quantized", object{"num_bits": 4, "codebook": "x"})), nil, `codebook: "x": unsupported`},
		{"transform at an unknown place", method("compressed-tensors", object{"transform_config": object{"config_groups": object{"u": object{"apply": []object{{"location": "elsewhere"}}}}}}), nil, "weights for transformed inputs or outputs"},
		{"transform of an unknown key", method("compressed-tensors", object{"transform_config": object{"config_groups": object{"u": object{"type": "hadamard", "scale": 2}}}}), nil, "scale: 2: unsupported"},
		{"algorithm of a layer", method("modelopt", object{"quant_algo": "MIXED_PRECISION", "quantized_layers": object{"a": object{"quant_algo": "W4A16_AWQ"}}}), nil, `quant_algo "W4A16_AWQ", not NVFP4 or`},
		{"key of a layer", method("modelopt", object{"quantized_layers": object{"a": object{"quant_algo": "FP8", "pre_quant_scale": true}}}), nil, `quantized_layers: "a": pre_quant_scale: true: unsupported`},
		{"group twice", `{"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"g":{},"g":{}}}}`, nil, `config_groups: duplicate key "g"`},
		{"key of MLX", text(object{"quantization": object{"bits": 4, "group_size": 32, "linear_class": "BitLinear"}}), nil, `linear_class: "BitLinear": unsupported`},
		{"exceptions of MLX", text(object{"quantization": object{"bits": 4, "group_size": 32, "ignore": []string{"a"}}}), nil, `ignore: ["a"]: unsupported`},
		{"key of MLX's module", text(object{"quantization": object{"bits": 4, "group_size": 32, "a": object{"rotation": 1}}}), nil, `"a": rotation: 1: unsupported`},
		{"module of MLX without bits", text(object{"quantization": object{"bits": 8, "group_size": 32, "a": object{"group_size": 64}}}), nil, `"a": no bits, or no group_size`},
		{"module of MLX without groups", text(object{"quantization": object{"bits": 8, "group_size": 32, "a": object{"bits": 4}}}), nil, `"a": no bits, or no group_size`},
		{"group of 0 of MLX", text(object{"quantization": object{"bits": 4, "group_size": 0}}), nil, `group_size is 0`},
		{"state", method("bitsandbytes", object{"bnb_4bit_rotation": true}), nil, `bnb_4bit_rotation: true`},
		{"format of ComfyUI", `{"format_version":"1.0","layers":{"a":{"format":"convrot_w4a4"}}}`, nil, `"a": format "convrot_w4a4", not float8_e4m3fn or float8_e5m2 or int8_tensorwise or nvfp4 or mxfp8: unsupported`},
		{"rotation of ComfyUI", `{"format_version":"1.0","layers":{"a":{"format":"int8_tensorwise","convrot":true}}}`, nil, `"a": convrot: true: unsupported`},
		{"layers of ComfyUI that there are not", `{"format_version":"1.0","layers":{"a":{"format":"nvfp4"}}}`, nil, `a marker specifies that "a" is quantised as nvfp4, but its tensors are not`},
		{"the first of such layers", `{"format_version":"1.0","layers":{"d":{"format":"nvfp4"},"c":{"format":"nvfp4"},"b":{"format":"nvfp4"},"a":{"format":"mxfp8"}}}`, nil, `a marker specifies that "a" is quantised as mxfp8`},
		{"layers of another kind", `{"format_version":"1.0","layers":[1]}`, nil, `[1] is not an object`},
		{"duplicate key", `{"quantization_config":{"quant_method":"fp8","quant_method":"gptq"}}`, nil, `duplicate key "quant_method"`},
		{"duplicate section", `{"quantization_config":{},"quantization_config":{}}`, nil, `the config: duplicate key "quantization_config"`},
		{"method that is no string", `{"quantization_config":{"quant_method":1}}`, nil, `quant_method: json: cannot unmarshal number`},
		{"section that is not an object", `{"quantization_config":[1]}`, nil, `[1] is not an object`},
		{"config that is not an object", `[]`, nil, `the config: [] is not an object`},
		{"long method", method(long, object{}), nil, `quant_method "` + long[:200] + `..." is not one of`},
		{"long key", method("fp8", object{long: 1}), nil, `: ` + long[:200] + `...: 1: unsupported`},
		{"long value", method("fp8", object{"x": long}), nil, `x: "` + long[:199] + `...: unsupported`},
		{"long number", `{"quantization_config":{"quant_method":"gptq","bits":` + strings.Repeat("1", 5000) + `}}`, nil, "bits: json: cannot unmarshal number 111"},
		{"long number of a module", `{"quantization_config":{"quant_method":"gptq","dynamic":{"a":{"bits":` + strings.Repeat("1", 5000) + `}}}}`, nil, "bits: json: cannot unmarshal number 111"},
		{"long number as a method", `{"quantization_config":{"quant_method":` + strings.Repeat("1", 5000) + `}}`, nil, "quant_method: json: cannot unmarshal number"},
		{"long strategy", method("compressed-tensors", group("pack-quantized", object{"strategy": long + "group", "num_bits": 4})), nil, ": strategy xxx"},
		{"long format", method("compressed-tensors", object{"format": long}), nil, `format "` + long[:200] + `...", not dense or`},
		{"long name of a group", method("compressed-tensors", object{"config_groups": object{long: object{"format": "x"}}}), nil, long[:200] + `...": format "x"`},
		{"case folding", method("fp8", object{"ignored_layers": []string{"re:(?i)[B-\U00029942]"}}), nil, `ignores case: unsupported`},

		// If the config assigns groups by an index, the index must exist.
		{"order of GPTQ", method("gptq", object{"bits": 4, "group_size": 32, "desc_act": true}), words, `tensor "a.qweight": GPTQ: the config specifies actorder or desc_act, and the index of its groups is missing`},
		{"order of GPTQ", method("gptq", object{"bits": 4, "group_size": 32, "dynamic": object{"a": object{"desc_act": true}}}), words, `specifies actorder or desc_act`},
		{"order of GPTQ", method("gptq", object{"bits": 4, "group_size": 32, "dynamic": object{"-:a": object{}}}), words, `tensor "a.qweight": GPTQ: by dynamic: "-:a" it is not quantised`},
		{"order of GPTQ", method("gptq", object{"bits": 4, "group_size": 32}), words, ""},
		{"order of integers", ordered("group"), integers, `tensor "a.weight_packed": packed integers: the config specifies actorder or desc_act, and the index of its groups is missing`},
		{"order of integers", ordered(true), integers, "specifies actorder or desc_act"},
		{"order of integers", ordered("dynamic"), integers, "specifies actorder or desc_act"},
		{"order of integers", ordered("column"), integers, "actorder column: unsupported operation"},
		{"order of integers", ordered(object{"by": 1}), integers, "actorder map[by:1]: unsupported operation"},
		{"order of integers", ordered("weight"), integers, ""},
		{"order of integers", ordered("static"), integers, ""},
		{"order of integers", ordered(false), integers, ""},
		{"order of integers", ordered(nil), integers, ""},

		// Markers of ComfyUI.
		{"marker without a layer", "", []change{bytesOf("b.comfy_quant", `{"format":"nvfp4"}`)}, `a marker specifies that "b" is quantised as nvfp4, but its tensors are not`},
		{"marker of another layout", "", marked(`{"format":"nvfp4"}`), `tensor "a.weight": FP8: quant_method "comfyui" has no such tensors`},
		{"rotated", "", marked(`{"format":"int8_tensorwise","convrot":true}`), `tensor "a.comfy_quant": convrot: true: unsupported operation`},
		{"unknown format", "", marked(`{"format":"awq_w4a16"}`), `tensor "a.comfy_quant": format "awq_w4a16", not float8`},
		{"no format", "", marked(`{}`), `tensor "a.comfy_quant": format "", not float8`},
		{"no JSON", "", marked(`{"format"`), `tensor "a.comfy_quant": unexpected end of JSON input`},
		{"long", "", marked(strings.Repeat(" ", 1<<16+1)), `tensor "a.comfy_quant": U8 [65537] is not JSON of at most 65536 bytes`},
		{"of floats", "", append(marked("{}"), zeroed("a.comfy_quant", safetensors.F32, 1)), `tensor "a.comfy_quant": F32 [1] is not JSON of at most 65536 bytes`},
		{"next to a config", method("fp8", object{}), marked(`{"format":"float8_e4m3fn"}`), `tensor "a.comfy_quant": a marker of ComfyUI, though the config specifies quant_method "fp8"`},
		{"next to metadata", `{"format_version":"1.0","layers":{"a":{"format":"float8_e4m3fn"}}}`, marked(`{"format":"float8_e4m3fn"}`), ""},
		{"metadata alone", `{"format_version":"1.0","layers":{"a":{"format":"float8_e4m3fn"}}}`, marked("")[:2], ""},
		{"no marker", "", marked("")[:2], ""},
	} {
		t.Run(c.title, func(t *testing.T) {
			dequantizes(t, checkpoint(c.changes...), c.config, c.want)
		})
	}
	dequantizes(t, nil, `{"a":"`+strings.Repeat("x", 4<<20)+`"}`, "the config: 4194312 bytes exceed the limit of 4194304")
	require.Empty(t, dequantized(t, nil, `{"a":"`+strings.Repeat("x", 4<<20-8)+`"}`))
}

// TestRefusedIndex reads an index that points beyond the groups.
func TestRefusedIndex(t *testing.T) {
	for _, bad := range []int32{-2, -1, 1, 1 << 30} {
		index := make([]int32, 32)
		index[5] = bad
		m := checkpoint(zeroed("a.qweight", safetensors.I32, 4, 32), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32), numbers("a.g_idx", index...))
		plain := dequantized(t, m, method("gptq", object{"bits": 4, "group_size": 32}))
		_, err := safetensors.Append[float32](nil, plain["a.weight"])
		require.ErrorContains(t, err, `tensor "a.weight": the index puts column 5 into group`)
	}
}

// TestTruncated cuts the config of each layout off at every byte, and the data of each tensor. The
// results are the same as before, or there is an error.
func TestTruncated(t *testing.T) {
	for _, w := range twins(4) {
		for n := range len(w.config) {
			require.Error(t, errorOf(quant.Dequantize(w.tensors, []byte(w.config[:n]))), w.config[:n])
		}
		for name, x := range w.tensors {
			raw := elements[byte](t, x)
			for n := 0; n < len(raw); n += 1 + len(raw)/20 {
				tensors := maps.Clone(w.tensors)
				tensors[name] = must(safetensors.NewTensorAt(x.DType(), x.Shape(), bytes.NewReader(raw[:n])))
				plain, err := quant.Dequantize(tensors, []byte(w.config))
				var got []float32
				if err == nil {
					got, err = safetensors.Append[float32](nil, plain[w.name])
				}
				if err == nil { // padding and the scales of inputs are not needed
					requireSame(t, w.elements(), got, w.title)
				} else {
					require.ErrorIs(t, err, io.ErrUnexpectedEOF, "%s: %s cut at %d of %d", w.title, name, n, len(raw))
				}
			}
		}
	}
}

// An endless reader stands for data of any size. Every read fails.
type endless struct{}

func (endless) ReadAt(p []byte, off int64) (int, error) { return 0, errors.New("no bytes") }

// TestNoAllocationFromShapes opens tensors whose shapes claim many TiB.
func TestNoAllocationFromShapes(t *testing.T) {
	for _, shape := range [][]int{{1 << 20, 1 << 24}, {1 << 24, 1 << 20}} {
		m := zerosOf(endless{}, "weight", safetensors.F8_E4M3, shape, "weight_scale_inv", safetensors.F32, []int{shape[0] / 128, shape[1] / 128})
		var plain map[string]safetensors.Tensor
		require.Less(t, testplatform.Allocated(func() { plain = dequantized(t, m, "{}") }), uint64(1<<20))
		part := must(plain["a.weight"].Slice(safetensors.Span(1<<19, 1<<19+3), safetensors.Span(1<<19, 1<<19+5)))
		require.ErrorContains(t, errorOf(safetensors.Append[float32](nil, part)), "no bytes")
	}
}

// TestHugeResult: more numbers than an F32 tensor can hold are an error.
func TestHugeResult(t *testing.T) {
	if strconv.IntSize < 64 {
		t.Skip("shapes are smaller")
	}
	n := 1 << 30
	m := zerosOf(zeros{}, "weight", safetensors.F8_E4M3, []int{n, n}, "weight_scale_inv", safetensors.F32, []int{n / 128, n / 128})
	dequantizes(t, m, "", `tensor "a.weight": FP8 in blocks: `)
}

// FuzzDequantize: no file and no config makes Dequantize panic. A result has as many bytes as its
// shape requires, and at most eight numbers for each byte of the file.
func FuzzDequantize(f *testing.F) {
	for _, name := range vectorFiles(f, "[^q]*.safetensors") {
		if info, err := os.Stat(name); err != nil || info.Size() > 20_000 {
			continue
		}
		v := readVector(f, name)
		var b bytes.Buffer
		require.NoError(f, safetensors.Write(&b, v.tensors, nil), filepath.Base(name))
		f.Add(b.Bytes(), v.config)
	}
	f.Fuzz(func(t *testing.T, file, config []byte) {
		x, err := safetensors.Parse(file)
		if err != nil {
			return
		}
		tensors := maps.Collect(x.Tensors())
		for _, c := range [][]byte{config, nil} {
			plain, err := quant.Dequantize(tensors, c)
			if err != nil {
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(plain)) {
				p := plain[name]
				require.LessOrEqual(t, p.Len(), 8*len(file))
				whole, err := safetensors.Append[byte](nil, p)
				if err != nil {
					continue
				}
				if len(p.Shape()) == 2 && p.Shape()[1] > 1 && p.DType().Bits() >= 8 {
					requireColumn(t, p, whole)
				}
				require.EqualValues(t, p.Size(), len(whole))
			}
		}
	})
}

// TestAccepted: checkpoints that just satisfy a rule are accepted.
func TestAccepted(t *testing.T) {
	for _, c := range []struct {
		title, config string
		changes       []change
		shape         []int // shape of the result
	}{
		{"INT8 without an order", method("bitsandbytes", object{}), []change{zeroed("a.weight", safetensors.I8, 2, 32), zeroed("a.SCB", safetensors.F32, 2)}, []int{2, 32}},
		{"a single scale, whatever the blocks", method("fp8", object{"weight_block_size": []int{1, 1}}), []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32)}, []int{2, 2}},
		{"an odd number of words", method("gptq", object{"bits": 2, "group_size": 48}),
			[]change{zeroed("a.qweight", safetensors.I32, 3, 32), zeroed("a.qzeros", safetensors.I32, 1, 2), zeroed("a.scales", safetensors.F16, 1, 32)}, []int{32, 48}},
		{"groups that only the scales tell", compressedConfig("pack-quantized", object{"num_bits": 4}),
			[]change{zeroed("a.weight_packed", safetensors.I32, 2, 2), zeroed("a.weight_scale", safetensors.F32, 2, 2), numbers("a.weight_shape", 2, 16)}, []int{2, 16}},
		{"integers without columns", compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "channel"}),
			[]change{zeroed("a.weight_packed", safetensors.I32, 2, 0), zeroed("a.weight_scale", safetensors.F32, 2, 0), numbers("a.weight_shape", 2, 0)}, []int{2, 0}},
		{"a single group has its order", compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8, "actorder": "group"}),
			[]change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 8)}, []int{2, 8}},
		{"the largest blocks", method("bitsandbytes", object{}), []change{
			zeroed("a.weight", safetensors.U8, 8, 1), zeroed("a.weight.absmax", safetensors.U8, 1), zeroed("a.weight.quant_map", safetensors.F32, 16),
			zeroed("a.weight.nested_absmax", safetensors.F32, 1), zeroed("a.weight.nested_quant_map", safetensors.F32, 256),
			bytesOf("a.weight.quant_state.bitsandbytes__nf4", `{"blocksize":2147483647,"nested_blocksize":2147483647,"nested_offset":0,"shape":[4,4]}`),
		}, []int{4, 4}},
		{"blocks of 128×128 without a config", "{}", []change{zeroed("a.weight", safetensors.F8_E4M3, 129, 130), zeroed("a.weight_scale", safetensors.F32, 2, 2)}, []int{129, 130}},
		{"the longest lines, of which there are none", method("fp8", object{}), []change{zeroed("a.weight", safetensors.F8_E4M3, 0, math.MaxInt/8), zeroed("a.weight_scale", safetensors.F32, 0, 1)}, []int{0, math.MaxInt / 8}},
	} {
		x := dequantized(t, checkpoint(c.changes...), c.config)["a.weight"]
		require.Equal(t, c.shape, x.Shape(), c.title)
		if x.Len() == 0 {
			continue
		}
		require.Equal(t, []float32{0}, elements[float32](t, x, safetensors.Span(0, 1), safetensors.Span(0, 1)), c.title)
	}
}

// TestConv1D: in models of transformers with modules of its class Conv1D, these weights have a row
// for each input. GPTQ, AWQ and bitsandbytes store them quantised with a row for each output, like
// the weights of linear layers.
func TestConv1D(t *testing.T) {
	m := newMaker()
	for _, module := range []string{"h.0.attn.c_attn", "h.0.attn.proj"} {
		m.random(module+".weight", safetensors.I8, 2, 32)
		m.floats(module+".SCB", safetensors.F32, 2)
	}
	section := object{"quant_method": "bitsandbytes", "load_in_8bit": true}
	linear := dequantized(t, m.tensors, text(object{"model_type": "gpt_bigcode", "quantization_config": section}))
	for _, file := range []object{{"model_type": "gpt2", "quantization_config": section}, {"decoder": object{"model_type": "imagegpt"}, "quantization_config": section}} {
		plain := dequantized(t, m.tensors, text(file))
		require.Equal(t, []int{2, 32}, plain["h.0.attn.proj.weight"].Shape())
		x := plain["h.0.attn.c_attn.weight"]
		require.Equal(t, []int{32, 2}, x.Shape())
		back, err := x.Transpose(1, 0)
		require.NoError(t, err)
		require.Equal(t, elements[float32](t, linear["h.0.attn.c_attn.weight"]), elements[float32](t, back))
	}
}

// TestFindConfigNil: a nil func is an error, and not a panic.
func TestFindConfigNil(t *testing.T) {
	_, err := quant.FindConfig(nil)
	require.EqualError(t, err, "safetensors: the func that reads a config is nil")
}

// TestTopLevelScale: an integer tensor beside a tensor "scale" is not quantised if neither is part of a module.
func TestTopLevelScale(t *testing.T) {
	for names, want := range map[[2]string]string{
		{"cube", "scale"}:      "",
		{"cube", "scales"}:     "",
		{"weights", "scale"}:   `tensor "weights": no layout has I32 [2,4] with scales F32 [1] under such names`,
		{"a.cube", "a.scale"}:  `tensor "a.cube": no layout has I32 [2,4] with scales F32 [1] under such names`,
		{"cube", "cube_scale"}: `tensor "cube": no layout has I32 [2,4] with scales F32 [1] under such names`,
	} {
		tensors := make(map[string]safetensors.Tensor)
		zeroed(names[0], safetensors.I32, 2, 4)(tensors)
		zeroed(names[1], safetensors.F32, 1)(tensors)
		dequantizes(t, tensors, "", want)
	}
}
