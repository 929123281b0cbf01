package quant_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// readError returns the error of dequantising a checkpoint, or of reading its weight.
func readError(tensors map[string]safetensors.Tensor, config string) error {
	plain, err := quant.Dequantize(tensors, []byte(config))
	if err == nil {
		_, err = safetensors.Append[float32](nil, plain["a.weight"])
	}
	return err
}

// filled adds an I32 tensor whose words all have the same value.
func filled(name string, word uint32, shape ...int) change {
	return func(m map[string]safetensors.Tensor) {
		m[name] = must(safetensors.NewTensor(safetensors.I32, shape, slices.Repeat([]int32{int32(word)}, size(safetensors.I8, shape...))))
	}
}

// TestSymmetry: if the config specifies that zero points are in the middle of the codes, and a
// stored one is not, the error names both keys and the stored number. Zero points in the middle are
// accepted.
func TestSymmetry(t *testing.T) {
	gptq := func(bits int, zero uint32) []change {
		word := uint32(0)
		for shift := 0; shift < 32; shift += bits {
			word |= zero << shift
		}
		return []change{zeroed("a.qweight", safetensors.I32, bits, 32), filled("a.qzeros", word, 1, bits), zeroed("a.scales", safetensors.F16, 1, 32)}
	}
	awq := func(word uint32) []change {
		return []change{zeroed("a.qweight", safetensors.I32, 32, 4), filled("a.qzeros", word, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32)}
	}
	says := func(name string, more object) string {
		more["group_size"] = 32
		if more["bits"] == nil {
			more["bits"] = 4
		}
		return method(name, more)
	}
	sym := func(sym bool, key, format string) object { return object{"sym": sym, key: format} }
	for _, c := range []struct {
		config  string
		changes []change
		want    string
	}{
		{says("gptq", sym(true, "checkpoint_format", "gptq")), gptq(4, 7), ""},
		{says("gptq", sym(true, "checkpoint_format", "gptq")), gptq(4, 8), `tensor "a.weight": the config specifies sym: true and checkpoint_format: gptq, by which every stored zero point is 7, but "a.qzeros" has 8`},
		{says("gptq", object{"sym": true}), gptq(4, 15), `sym: true and checkpoint_format: gptq, by which every stored zero point is 7, but "a.qzeros" has 15`},
		{says("gptq", sym(true, "format", "gptq_v2")), gptq(4, 8), ""},
		{says("gptq", sym(true, "format", "gptq_v2")), gptq(4, 7), `sym: true and checkpoint_format: gptq_v2, by which every stored zero point is 8, but "a.qzeros" has 7`},
		{says("gptq", object{"sym": true, "bits": 2}), gptq(2, 1), ""},
		{says("gptq", object{"sym": true, "bits": 2}), gptq(2, 2), "every stored zero point is 1, but"},
		{says("gptq", object{"sym": true, "bits": 8}), gptq(8, 127), ""},
		{says("gptq", object{"sym": true, "bits": 8}), gptq(8, 128), "every stored zero point is 127, but"},
		{says("gptq", object{"sym": false}), gptq(4, 8), ""},
		{says("gptq", object{}), gptq(4, 8), ""},
		{says("gptq", object{"sym": true, "dynamic": object{"a": object{"sym": false}}}), gptq(4, 8), ""},
		{says("gptq", object{"sym": false, "dynamic": object{"a": object{"sym": true}}}), gptq(4, 8), `sym: true and checkpoint_format: gptq`},
		{says("gptq", object{"sym": true, "dynamic": object{"a": object{"group_size": 32}}}), gptq(4, 8), `sym: true and checkpoint_format: gptq`},
		{says("auto-round", sym(true, "packing_format", "auto_round:auto_gptq")), gptq(4, 7), ""},
		{says("auto-round", sym(true, "packing_format", "auto_round:auto_gptq")), gptq(4, 8), `sym: true and packing_format: auto_round:auto_gptq, by which every stored zero point is 7, but`},
		{says("auto-round", sym(true, "packing_format", "auto_round:gptqmodel")), gptq(4, 8), ""},
		{says("auto-round", sym(true, "packing_format", "auto_round")), gptq(4, 7), `sym: true and packing_format: auto_round, by which every stored zero point is 8, but`},
		{says("auto-round", sym(true, "packing_format", "auto_round:auto_awq")), awq(0x88888888), ""},
		{says("auto-round", sym(true, "packing_format", "auto_awq")), awq(0x88887888), `by which every stored zero point is 8, but "a.qzeros" has 7`},
		{says("auto-round", object{"sym": false, "packing_format": "auto_round", "extra_config": object{"a": object{"sym": true}}}), gptq(4, 7), `sym: true and packing_format: auto_round`},
		{says("awq", object{"zero_point": false}), awq(0x88888888), ""},
		{says("awq", object{"zero_point": false}), awq(0), `zero_point: false and version: gemm, by which every stored zero point is 8, but "a.qzeros" has 0`},
		{says("awq", object{"zero_point": true}), awq(0), ""},
		{says("awq", object{"zero_point": true, "sym": true}), awq(0), "sym: true and version: gemm"},
		{says("awq", object{"zero_point": false, "sym": false}), awq(0), "zero_point: false and version: gemm"},
	} {
		err := readError(checkpoint(c.changes...), c.config)
		if c.want == "" {
			require.NoError(t, err, c.config)
			continue
		}
		require.ErrorContains(t, err, c.want, c.config)
	}

	// compressed-tensors: a symmetric weight may have zero points of zero.
	for _, zero := range []int8{0, 3} {
		m := checkpoint(zeroed("a.weight", safetensors.I8, 2, 2), zeroed("a.weight_scale", safetensors.F32, 2, 1))
		m["a.weight_zero_point"] = must(safetensors.NewTensor(safetensors.I8, []int{2, 1}, []int8{0, zero}))
		err := readError(m, compressedConfig("int-quantized", object{"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true}))
		if zero == 0 {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, `the config specifies symmetric: true and format: int-quantized, by which every stored zero point is 0, but "a.weight_zero_point" has 3`)
	}
}

// TestClaims: keys on which no number depends must agree with the tensors.
func TestClaims(t *testing.T) {
	nf4 := func(scales ...change) []change {
		return append(slices.Clone(scales), zeroed("a.weight", safetensors.U8, 8, 1), zeroed("a.weight.quant_map", safetensors.F32, 16),
			bytesOf("a.weight.quant_state.bitsandbytes__nf4", `{"quant_type":"nf4","blocksize":64,"shape":[4,4],"nested_blocksize":256,"nested_offset":0}`))
	}
	single := nf4(zeroed("a.weight.absmax", safetensors.F32, 1), bytesOf("a.weight.quant_state.bitsandbytes__nf4", `{"quant_type":"nf4","blocksize":64,"shape":[4,4]}`))
	single = append(single, bytesOf("a.weight.quant_state.bitsandbytes__nf4", `{"quant_type":"nf4","blocksize":64,"shape":[4,4]}`))
	nested := nf4(zeroed("a.weight.absmax", safetensors.U8, 1), zeroed("a.weight.nested_absmax", safetensors.F32, 1), zeroed("a.weight.nested_quant_map", safetensors.F32, 256))
	int8 := []change{zeroed("a.weight", safetensors.I8, 2, 32), zeroed("a.SCB", safetensors.F32, 2)}
	fp8 := []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32)}
	mxfp8 := []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 32), zeroed("a.weight_scale", safetensors.U8, 2, 1)}
	nvfp4 := []change{zeroed("a.weight", safetensors.U8, 2, 8), zeroed("a.weight_scale", safetensors.F8_E4M3, 2, 1), zeroed("a.weight_scale_2", safetensors.F32)}
	ordered := []change{zeroed("a.qweight", safetensors.I32, 8, 32), zeroed("a.qzeros", safetensors.I32, 2, 4), zeroed("a.scales", safetensors.F16, 2, 32),
		numbers("a.g_idx", slices.Repeat([]int32{0, 1}, 32)...)}
	layer := func(name string, group int) string {
		return method("modelopt", object{"quant_algo": "MIXED_PRECISION", "quantized_layers": object{"a": object{"quant_algo": name, "group_size": group}}})
	}
	group := func(format string, w object) string { return compressedConfig(format, w) }
	for _, c := range []struct {
		config  string
		changes []change
		want    string
	}{
		{method("bitsandbytes", object{"load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": false}), single, ""},
		{method("bitsandbytes", object{"bnb_4bit_quant_type": "fp4"}), single, `tensor "a.weight": NF4: the config specifies bnb_4bit_quant_type: fp4, which its tensors contradict`},
		{method("bitsandbytes", object{"bnb_4bit_use_double_quant": true}), single, "bnb_4bit_use_double_quant: true"},
		{method("bitsandbytes", object{"bnb_4bit_use_double_quant": true}), nested, ""},
		{method("bitsandbytes", object{"bnb_4bit_use_double_quant": false}), nested, "bnb_4bit_use_double_quant: false"},
		{method("bitsandbytes", object{"load_in_8bit": true}), single, "load_in_8bit"},
		{method("bitsandbytes", object{"_load_in_4bit": true}), int8, "load_in_4bit"},
		{method("bitsandbytes", object{"_load_in_8bit": true, "bnb_4bit_quant_type": "fp4", "bnb_4bit_use_double_quant": false}), int8, ""},
		{method("modelopt", object{"quant_algo": "FP8", "group_size": 16}), fp8, ""},
		{method("modelopt", object{"quant_algo": "NVFP4"}), fp8, `tensor "a.weight": FP8: the config specifies quant_algo: NVFP4, which its tensors contradict`},
		{method("modelopt", object{"quant_algo": "FP8"}), nvfp4, "quant_algo: FP8"},
		{method("modelopt", object{"quant_algo": "W4A16_NVFP4", "group_size": 16}), nvfp4, ""},
		{method("modelopt", object{"quant_algo": "FP8_PB_WO"}), nvfp4, "quant_algo: FP8_PB_WO"},
		{method("modelopt", object{"quant_algo": "NVFP4", "group_size": 32}), nvfp4, "quant_algo: NVFP4, group_size: 32"},
		{method("modelopt", object{"quant_algo": "MXFP8"}), mxfp8, ""},
		{method("modelopt", object{"quant_algo": "FP8"}), mxfp8, "quant_algo: FP8"},
		{method("modelopt", object{"quant_algo": "NVFP4", "config_groups": object{"g": object{"weights": object{"num_bits": 8}}}}), nvfp4, `num_bits: 8, type: , but quant_algo: NVFP4`},
		{method("modelopt", object{"quant_algo": "NVFP4", "config_groups": object{"g": object{"weights": object{"num_bits": 4, "type": "int"}}}}), nvfp4, `type "int", not float`},
		{layer("MXFP8", 32), mxfp8, ""},
		{layer("FP8", 0), mxfp8, "quant_algo: FP8"},
		{layer("MXFP8", 16), mxfp8, "quant_algo: MXFP8, group_size: 16"},
		{group("float-quantized", object{"num_bits": 8, "type": "int", "strategy": "tensor"}), fp8, "format: float-quantized, type: int"},
		{group("float-quantized", object{"num_bits": 4, "type": "float", "strategy": "tensor"}), fp8, "format: float-quantized, num_bits: 4"},
		{group("mxfp8-quantized", object{"num_bits": 8, "type": "float", "strategy": "group", "group_size": 16}), mxfp8, "format: mxfp8-quantized, group_size: 16"},
		{group("float-quantized", object{"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": true}), fp8, "dynamic: true: unsupported operation"},
		{method("fp8", object{"fmt": "e5m2"}), fp8, `fmt "e5m2", not e4m3`},
		{method("fp8", object{"expert_dtype": "int8"}), []change{zeroed("a.weight", safetensors.I8, 2, 16), zeroed("a.scale", safetensors.F8_E8M0, 2, 1)}, "expert_dtype: int8"},
		{method("fp8", object{"expert_dtype": "fp4"}), []change{zeroed("a.weight", safetensors.I8, 2, 16), zeroed("a.scale", safetensors.F8_E8M0, 2, 1)}, ""},
		{method("gptq", object{"bits": 4, "group_size": 32, "method": "awq"}), ordered, `method "awq", not gptq`},
		{method("gptq", object{"bits": 4, "group_size": 32, "desc_act": true}), ordered, ""},
		{method("gptq", object{"bits": 4, "group_size": 32}), ordered, ""},
		{method("gptq", object{"bits": 4, "group_size": 32, "desc_act": false}), ordered, `tensor "a.weight": the config specifies desc_act: false, but the groups of "a.g_idx" are not adjacent`},
		{method("gptq", object{"bits": 4, "group_size": 32, "desc_act": false, "act_group_aware": true}), ordered, ""},
		{method("gptq", object{"bits": 4, "group_size": 32, "desc_act": false, "dynamic": object{"a": object{"desc_act": true}}}), ordered, ""},
	} {
		err := readError(checkpoint(c.changes...), c.config)
		if c.want == "" {
			require.NoError(t, err, c.config)
			continue
		}
		require.ErrorContains(t, err, c.want, c.config)
	}
}

// TestPerRow: the marker of ComfyUI may specify whether a layer has a scale for each row.
func TestPerRow(t *testing.T) {
	for _, c := range []struct {
		perRow string
		shape  []int
		want   string
	}{
		{`,"per_row":true`, []int{3, 1}, ""},
		{`,"per_row":false`, nil, ""},
		{``, []int{3, 1}, ""},
		{`,"per_row":true`, nil, `its shape is [], but "a.weight" needs [3,1]`},
		{`,"per_row":false`, []int{3, 1}, `its shape is [3,1], but "a.weight" needs [1,1]`},
		{`,"per_row":1`, nil, "per_row: json: cannot unmarshal number"},
	} {
		m := newMaker()
		m.random("a.weight", safetensors.I8, 3, 2)
		m.floats("a.weight_scale", safetensors.F32, c.shape...)
		plain := maps.Clone(m.tensors)
		bytesOf("a.comfy_quant", `{"format":"int8_tensorwise"`+c.perRow+`}`)(m.tensors)
		err := readError(m.tensors, "{}")
		if c.want != "" {
			require.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err)
		config := fmt.Sprintf(`{"format_version":"1.0","layers":{"a":{"format":"int8_tensorwise"%s}}}`, c.perRow)
		require.Equal(t, elements[float32](t, dequantized(t, m.tensors, "{}")["a.weight"]), elements[float32](t, dequantized(t, plain, config)["a.weight"]))
	}
	m := checkpoint(zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32), bytesOf("a.comfy_quant", `{"format":"float8_e4m3fn","per_row":true}`))
	dequantizes(t, m, "", `tensor "a.comfy_quant": per_row: true: unsupported operation`)
}

// TestNestedConfigs: the quantization_config may be in a config at most two levels down. If a
// method elsewhere is not used, the error names the method and its place.
func TestNestedConfigs(t *testing.T) {
	m := checkpoint(zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32, 1, 2))
	blocks := `{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"targets":["Linear"],"weights":{"strategy":"block","block_structure":[2,1]}}}}`
	within := func(section string, keys ...string) string {
		for _, key := range slices.Backward(keys) {
			section = fmt.Sprintf(`{%q:%s}`, key, section)
		}
		return section
	}
	const own = "quantization_config"
	for _, path := range [][]string{{own}, {"text_config", own}, {"language_config", own}, {"llm_config", own}, {"thinker_config", own},
		{"thinker_config", "text_config", own}, {"some_config", own}, {"some_config", "other_config", own}, {"thinker_config", "text_config", "compression_config"}} {
		require.Equal(t, []int{2, 2}, dequantized(t, m, within(blocks, path...))["a.weight"].Shape(), "%v", path)
		other := strings.Replace(within(blocks, path...), "[2,1]", "[1,1]", 1)
		dequantizes(t, m, other, `tensor "a.weight_scale": FP8: its shape is [1,2], but "a.weight" needs [2,2]`)
	}
	// A section and its copy are used once.
	dequantizes(t, m, `{"quantization_config":`+blocks+`,"text_config":{"quantization_config": `+strings.ReplaceAll(blocks, ",", ", ")+`}}`, "")
	const algorithm = `{"quantization":{"quant_algo":"FP8","quantized_layers":{"b":{"quant_algo":"FP8"}}}`
	dequantizes(t, checkpoint(zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32)), algorithm+`}`, "")

	fp8 := `{"quant_method":"fp8"}`
	for config, want := range map[string]string{
		within(fp8, "a", "b", "c", own): `the config: a: b: c: quantization_config: quant_method "fp8" is not used: unsupported operation`,
		`{"quantization_config":` + blocks + `,"vision_config":{"quantization_config":{"quant_method":"gptq"}}}`:              `the config: vision_config: quantization_config: quant_method "gptq" is not used`,
		`{"quantization_config":` + blocks + `,"text_config":{"quantization_config":` + fp8 + `}}`:                            `the config: text_config: quantization_config: quant_method "fp8" is not used`,
		`{"quantization_config":` + strings.Replace(blocks, `"format"`, `"version":{"quant_method":"awq"},"format"`, 1) + `}`: `the config: quantization_config: version: quant_method "awq" is not used`,
		`{"quantization_config":` + blocks + `,"x":[1,[{"y":{"quant_method":"hqq"}}]]}`:                                       `the config: x: []: []: y: quant_method "hqq" is not used`,
		`{"bits":4,"quant_method":"gptq"}`: `the config: quant_method "gptq" is not used`,
		`{"quantization_config":` + blocks + `,"audio_config":{"quantization":{"quant_algo":"NVFP4"}}}`:                      `the config: audio_config: quantization: quant_algo "NVFP4" is not used`,
		`{"a":{"b":{"c":{"d":` + strings.Repeat(`{"e":`, 5000) + `{"quant_method":"x"}` + strings.Repeat("}", 5000) + `}}}}`: `quant_method "x" is not used`,
		within(`{"quant_method":"quark"}`, "llm_config", own):                                                                `quant_method "quark" is not one of`,
		`{"thinker_config":{"text_config":[1]}}`:                                                                             `the config: thinker_config: text_config: [1] is not an object`,
		`{"quantization_config":` + blocks + `,"text_config":{"quantization_config":{"qu\u0061nt_method":"gptq"}}}`:          `quant_method "gptq" is not used`,
	} {
		dequantizes(t, m, config, want)
	}
	for _, config := range []string{ // these specify no method
		`{"audio_config":{"quantization":{"levels":8}}}`, `{"a":{"b":{"c":{"quant_method":null}}}}`, `{"x":["quant_method","fp8"]}`, `{"a":{"quantization_config":null}}`,
	} {
		dequantizes(t, m, config, `needs [1,1]`) // names, dtypes and shapes alone determine the layout
	}
}

// TestPythonsPatterns: patterns that have one meaning in Python and another in package regexp are
// refused.
func TestPythonsPatterns(t *testing.T) {
	config := func(target string) string {
		group := func(n int, target string) object {
			return object{"targets": []string{target}, "weights": object{"num_bits": 4, "type": "int", "strategy": "group", "group_size": n}}
		}
		return method("compressed-tensors", object{"format": "pack-quantized", "config_groups": object{"g0": group(8, target), "g1": group(16, "Linear")}})
	}
	named := func(module string, groups int) map[string]safetensors.Tensor {
		return checkpoint(zeroed(module+".weight_packed", safetensors.I32, 2, 2), zeroed(module+".weight_scale", safetensors.F32, 2, groups), numbers(module+".weight_shape", 2, 16))
	}
	for _, pattern := range []string{`m.x{,2}a`, `m.x{,}a`, `m.x{02}a`, `m.x{1,02}a`, `m.[[:alpha:]]`, `m.[x[:digit:]]`, `m.[^[:space:]]`, `m.[][:alpha:]]`, `\pL`, `\Qm\E`, `m\z`, `\155`, `\x{6d}`, `(?<n>m)`, `(?U)m`, `^*m`, `m\b?.a`, `m$?`, `m(?!x)`} {
		dequantizes(t, named("m.a", 1), config("re:"+pattern), fmt.Sprintf(`tensor "m.a.weight_packed": packed integers: target %q: an expression that only Python understands`, "re:"+pattern)[:60])
	}
	for _, pattern := range []string{`m.x{0,2}a`, `m.[[]?a`, `m.[^]]`, `m.[:alph]`, `m\.\{?a`, `m.a{1}`, `m.a{1,}`, `m\.\w`, `m\b.a`, `m.[\]a]`, `\x6d`} {
		dequantizes(t, named("m.a", 2), config("re:"+pattern), "")
	}
	for _, pattern := range []string{`m\.\w`, `m.\d`, `m.\s`, `m.\b`, `m.[^\W]`} {
		for _, module := range []string{"m.é", "m.\v", "m.٣", "m.\u00a0"} {
			dequantizes(t, named(module, 1), config("re:"+pattern), "means something else to Python: unsupported operation")
		}
	}
	dequantizes(t, named("m.é", 2), config(`re:m\..`), "")
	dequantizes(t, named("m.a\n", 1), config(`re:m\.a$`), "means something else to Python")
	dequantizes(t, named("m.a", 2), config(`re:m\.a$`), "")
	// In a list of exceptions, such a pattern matches no module.
	m := checkpoint(zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32), zeroed("xx.weight", safetensors.F8_E4M3, 2, 2))
	dequantizes(t, m, method("fp8", object{"ignored_layers": []string{"re:x{0,2}"}}), "")
	dequantizes(t, m, method("fp8", object{"ignored_layers": []string{"re:x{,2}"}}), `tensor "xx.weight": F8_E4M3 [2,2] belongs to a quantised tensor`)
	dequantizes(t, m, method("gptq", object{"dynamic": object{"x{,2}": object{}}}), "an expression that only Python understands")
}

// TestScalesOfModelOpt: a scale for each row is stored in one dimension, and a scale for each block
// of 128×128 in two or four.
func TestScalesOfModelOpt(t *testing.T) {
	const rows, columns = 129, 130
	ones := must(safetensors.NewTensor(safetensors.F8_E4M3, []int{rows, columns}, slices.Repeat([]byte{0x38}, rows*columns)))
	for _, c := range []struct {
		algorithm string
		shape     []int
		of        func(row, column int) int // number of the scale of an element
		want      string
	}{
		{"FP8_PER_CHANNEL_PER_TOKEN", []int{rows}, func(i, _ int) int { return i }, ""},
		{"FP8_PER_CHANNEL_PER_TOKEN", []int{rows, 1}, func(i, _ int) int { return i }, ""},
		{"FP8_PB_WO", []int{2, 2}, func(i, j int) int { return i/128*2 + j/128 }, ""},
		{"FP8_PB_WO", []int{2, 1, 2, 1}, func(i, j int) int { return i/128*2 + j/128 }, ""},
		{"FP8_PER_CHANNEL_PER_TOKEN", []int{2, 2}, nil, "its shape is [2,2], but"},
		{"FP8_PER_CHANNEL_PER_TOKEN", []int{columns}, nil, "its shape is [130], but"},
		{"FP8_PB_WO", []int{rows}, nil, "its shape is [129], but"},
		{"FP8_PB_WO", []int{1, 2, 1, 2}, nil, "its shape is [1,2,1,2], but"},
	} {
		scale := make([]float32, size(safetensors.I8, c.shape...))
		for i := range scale {
			scale[i] = float32(i + 1)
		}
		m := map[string]safetensors.Tensor{"a.weight": ones, "a.weight_scale": must(safetensors.NewTensor(safetensors.F32, c.shape, scale))}
		plain, err := quant.Dequantize(m, []byte(method("modelopt", object{"quant_algo": c.algorithm})))
		if c.want != "" {
			require.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err)
		got := must(safetensors.Append[float32](nil, plain["a.weight"]))
		for i := range rows {
			for j := range columns {
				require.Equal(t, scale[c.of(i, j)], got[i*columns+j], "%s %v [%d,%d]", c.algorithm, c.shape, i, j)
			}
		}
	}
}
