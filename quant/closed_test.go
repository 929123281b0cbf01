package quant_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// requireRight requires that dequantising gives the elements of the twin, or an error, which it
// returns.
func (w twin) requireRight(t *testing.T, tensors map[string]safetensors.Tensor, config []byte) (err error) {
	t.Helper()
	plain, err := quant.Dequantize(tensors, config)
	if err != nil {
		return err
	}
	x, ok := plain[w.name]
	require.True(t, ok)
	got, err := safetensors.Append[float32](nil, x)
	if err != nil {
		return err
	}
	require.Equal(t, safetensors.F32, x.DType())
	requireSame(t, w.elements(), got, w.title)
	return nil
}

// withKey adds a key to the quantization_config of a twin.
func (w twin) withKey(t *testing.T, key string, value any) []byte {
	t.Helper()
	var file map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(w.config), &file))
	for _, section := range file {
		section[key] = value
	}
	return must(json.Marshal(file))
}

// TestClosedWorld tries every layout with an unknown key, with an unknown neighbor, with a part
// missing, and without a config. The result is right, or the error names the problem. Names, dtypes
// and shapes distinguish the layouts, except for the number of bits of some.
func TestClosedWorld(t *testing.T) {
	for seed := range uint64(3) {
		for _, w := range twins(300 + seed) {
			t.Run(w.title, func(t *testing.T) {
				if w.config != "{}" {
					err := w.requireRight(t, w.tensors, w.withKey(t, "stranger", "x"))
					require.ErrorContains(t, err, `stranger: "x": unsupported operation`)
					for _, nothing := range []any{nil, false, "", []int{}} {
						if nothing == false && strings.Contains(w.config, `"quantization":`) {
							continue // a module of MLX
						}
						require.NoError(t, w.requireRight(t, w.tensors, w.withKey(t, "stranger", nothing)), "%v", nothing)
					}
				}
				names := []string{strings.TrimSuffix(w.name, ".weight") + ".stranger", strings.TrimSuffix(w.name, ".weight") + ".lora_A.default.weight"}
				if !strings.HasSuffix(w.name, ".weight") {
					names = append(names, w.name+"_stranger")
				}
				for _, name := range names {
					tensors := maps.Clone(w.tensors)
					zeroed(name, safetensors.F32, 3, 3)(tensors)
					err := w.requireRight(t, tensors, []byte(w.config))
					require.ErrorContains(t, err, fmt.Sprintf("tensor %q: F32 [3,3] next to ", name))
					require.ErrorIs(t, err, errors.ErrUnsupported)
				}
				for name := range w.tensors {
					tensors := maps.Clone(w.tensors)
					delete(tensors, name)
					if err := w.requireRight(t, tensors, []byte(w.config)); err != nil {
						require.ErrorContains(t, err, "safetensors: ")
					}
				}
				if err := w.requireRight(t, w.tensors, nil); err != nil {
					require.ErrorContains(t, err, "safetensors: tensor ")
				}
				with := must(quant.Layouts(w.tensors, []byte(w.config)))
				without, err := quant.Layouts(w.tensors, nil)
				if err != nil {
					require.ErrorContains(t, err, "no config.json specifies")
					return
				}
				require.Equal(t, slices.Sorted(maps.Keys(with)), slices.Sorted(maps.Keys(without)))
				for name, l := range with {
					require.Equal(t, l.Bits, without[name].Bits, name)
				}
			})
		}
	}
}

// TestEveryLayoutHasTwin checks that twin_test.go makes a twin of every row of layouts: the tests that
// go through twins prove nothing about a layout without one.
func TestEveryLayoutHasTwin(t *testing.T) {
	found := make(map[string]bool)
	for seed := range uint64(3) {
		for _, w := range twins(seed) {
			for layout, is := range quant.IdentifiedBy(w.tensors) {
				found[layout] = found[layout] || is
			}
		}
	}
	for layout, is := range found {
		require.True(t, is, "%s has no twin", layout)
	}
}

// TestMethodsAreDocumented checks that the table of doc.go has every quant_method.
func TestMethodsAreDocumented(t *testing.T) {
	text := string(must(os.ReadFile("doc.go")))
	for _, method := range quant.Methods() {
		row := regexp.MustCompile(`(?im)^//\t\(?(\w+, )?` + regexp.QuoteMeta(method) + `\b`) // MLX stands in brackets
		require.True(t, row.MatchString(text), "the table of doc.go has no row for %q", method)
	}
}

// TestNeighbors: which tensors a module may have next to its parts, and whether they are kept, left
// out or refused.
func TestNeighbors(t *testing.T) {
	const refused, kept, left = "refused", "kept", "left out"
	heads := `"num_attention_heads":8,"text_config":{"num_key_value_heads":4},`
	for _, c := range []struct {
		name  string
		dtype safetensors.DType
		shape []int
		want  string
	}{
		{"l.attn.q.bias", safetensors.F32, []int{2}, kept},
		{"l.attn.q.e_score_correction_bias", safetensors.F32, []int{2}, kept},
		{"l.attn.q.bias", safetensors.I32, []int{2}, refused},
		{"l.attn.q.input_scale", safetensors.F32, nil, left},
		{"l.attn.q.input_scale", safetensors.F32, []int{1}, left},
		{"l.attn.q.input_scale", safetensors.F32, []int{2}, refused},
		{"l.attn.q.input_zero_point", safetensors.I8, []int{1}, left},
		{"l.attn.q.output_scale", safetensors.F32, []int{1}, left},
		{"l.attn.q.output_scale", safetensors.F32, []int{4}, refused},
		{"l.attn.q.activation_scale", safetensors.F32, []int{4}, refused},
		{"l.norm.input_scale", safetensors.F32, []int{1}, kept},
		{"l.attn.k_scale", safetensors.F32, nil, left},
		{"l.attn.k_scale", safetensors.F32, []int{4}, left},
		{"l.attn.v_scale", safetensors.F32, []int{8, 1, 1}, left},
		{"l.attn.k_scale", safetensors.F32, []int{5}, kept},
		{"l.attn.k_scale", safetensors.F32, []int{2, 2}, kept},
		{"l.attn.k_scale", safetensors.I32, []int{1}, kept},
		{"l.attn.q.k_scale", safetensors.F32, []int{4}, left},
		{"l.attn.q.k_scale", safetensors.F32, []int{5}, refused},
		{"l.mixer.k_scale", safetensors.F32, nil, kept},
		{"l.mixer.q.k_scale", safetensors.F32, nil, kept},
		{"l.attn2.q.k_scale", safetensors.F32, []int{8}, left},
		{"k_scale", safetensors.F32, nil, kept},
		{"l.attn.prob_scale", safetensors.F32, nil, left},
		{"l.attn.q.svdquant_lora_a", safetensors.BF16, []int{2, 2}, refused},
		{"l.attn.q.pre_quant_scale", safetensors.BF16, []int{2}, refused},
		{"l.attn.q.weight_scale", safetensors.F32, nil, refused},
		{"l.attn.q.a.b.c.d.e.f.g", safetensors.F32, nil, kept}, // too many components to belong to the module
		{"l.attn.q2.x", safetensors.F32, nil, kept},
	} {
		t.Run(fmt.Sprint(c.name, " ", c.dtype, c.shape), func(t *testing.T) {
			m := checkpoint(
				zeroed("l.attn.q.weight", safetensors.F8_E4M3, 2, 2), zeroed("l.attn.q.weight_scale_inv", safetensors.F32, 1, 1),
				zeroed(c.name, c.dtype, c.shape...),
			)
			config := []byte("{" + heads + method("fp8", object{})[1:])
			plain, err := quant.Dequantize(m, config)
			if c.want == refused {
				require.ErrorContains(t, err, fmt.Sprintf(`tensor %q: `, c.name))
				require.ErrorContains(t, err, `next to "l.attn.q.weight" (FP8 in blocks): unsupported operation`)
				return
			}
			require.NoError(t, err)
			layouts := must(quant.Layouts(m, config))
			if c.want == kept {
				require.Equal(t, m[c.name], plain[c.name])
				require.NotContains(t, layouts, c.name)
				return
			}
			require.NotContains(t, plain, c.name)
			require.Equal(t, quant.Layout{Method: "fp8"}, layouts[c.name])
		})
	}
	// Scales of the cache next to a k_proj and a v_proj, whatever the name of the module around
	// these is.
	for name, want := range map[string]string{
		"l.mixer.k_proj.k_scale": left, "l.mixer.k_scale": left, "l.mixer.v_scale": kept, "l.mixer.k_proj.v_scale": refused, "l.mixer.q_proj.k_scale": kept,
	} {
		m := checkpoint(zeroed("l.mixer.k_proj.weight", safetensors.F8_E4M3, 2, 2), zeroed("l.mixer.k_proj.weight_scale_inv", safetensors.F32, 1, 1), zeroed(name, safetensors.BF16, 1))
		plain, err := quant.Dequantize(m, []byte(method("fp8", object{})))
		require.Equal(t, want == refused, err != nil, name)
		_, ok := plain[name]
		require.Equal(t, want == kept, ok, name)
		zeroed(name, safetensors.BF16, 2)(m)
		_, err = quant.Dequantize(m, []byte(method("fp8", object{})))
		require.Equal(t, strings.Contains(name, "k_proj."), err != nil, name)
	}
	dequantizes(t, checkpoint(zeroed("weight", safetensors.F8_E4M3, 2, 2), zeroed("weight_scale_inv", safetensors.F32, 1, 1), zeroed(".x", safetensors.F32)),
		method("fp8", object{}), `tensor ".x": F32 [] next to "weight"`)
	m := map[string]safetensors.Tensor{} // a model without quantised tensors
	zeroed("attn.k_scale", safetensors.F32)(m)
	zeroed("attn.input_scale", safetensors.F32)(m)
	require.Equal(t, m, must(quant.Dequantize(m, nil)))
}

// TestStrangers: without a config, tensors that look quantised in an unknown layout are refused.
func TestStrangers(t *testing.T) {
	type parts []change
	f32 := func(name string, shape ...int) change {
		return zeroed(name, safetensors.F32, shape...)
	}
	for title, c := range map[string]struct {
		parts parts
		want  string
	}{
		"Quanto":             {parts{zeroed("a.weight._data", safetensors.I8, 2, 2), f32("a.weight._scale", 2, 1)}, "quantised by Quanto"},
		"EETQ":               {parts{zeroed("a.weight", safetensors.I8, 2, 2), zeroed("a.weight_scales", safetensors.F16, 2)}, `tensor "a.weight": no layout has I8 [2,2] with scales F16 [2]`},
		"HQQ":                {parts{zeroed("a.W_q", safetensors.U8, 2, 2), f32("a.scale", 2, 1), f32("a.zero", 2, 1)}, "quantised by HQQ or SINQ"},
		"AQLM":               {parts{zeroed("a.codes", safetensors.I8, 2, 2, 1), f32("a.codebooks", 1, 4, 1, 2), f32("a.scales", 2, 1, 1, 1)}, "quantised by AQLM"},
		"HIGGS":              {parts{zeroed("a.weight", safetensors.I16, 2, 2), f32("a.scales", 2, 1), f32("a.tables", 4), f32("a.tables2", 4, 2)}, `tensor "a.weight": no layout has I16 [2,2] with scales F32 [2,1]`},
		"EXL3":               {parts{zeroed("a.trellis", safetensors.I16, 1, 1, 64), zeroed("a.suh", safetensors.F16, 16), zeroed("a.svh", safetensors.F16, 16)}, "quantised by EXL3"},
		"Gemma":              {parts{zeroed("a.embedding_quantized", safetensors.I8, 2, 2), f32("a.embedding_scale", 2, 1)}, "quantised by Gemma"},
		"sparse-bitmask":     {parts{f32("a.compressed", 2), zeroed("a.bitmask", safetensors.U8, 2, 1), zeroed("a.row_offsets", safetensors.I64, 2, 1)}, "quantised by sparse-bitmask"},
		"MLX mxfp4":          {parts{zeroed("a.weight", safetensors.U32, 2, 4), zeroed("a.scales", safetensors.U8, 2, 1)}, `tensor "a.weight": no layout has U32 [2,4] with scales U8 [2,1]`},
		"F8 with its scale":  {parts{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), f32("a.weight.scale")}, `tensor "a.weight": no layout has F8_E4M3 [2,2] with scales F32 []`},
		"F8 of Mistral":      {parts{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), f32("a.qscale_weight")}, `no layout has F8_E4M3 [2,2] with scales F32 []`},
		"F8_E5M2":            {parts{zeroed("a.weight", safetensors.F8_E5M2, 2, 2), f32("a.scale")}, `no layout has F8_E5M2 [2,2] with scales F32 []`},
		"torchao":            {parts{zeroed("a._weight_qdata", safetensors.I8, 2, 2), f32("a._weight_scale", 2)}, "quantised by torchao"},
		"SVDQuant":           {parts{zeroed("a.svdquant_lora_a", safetensors.BF16, 2, 2), zeroed("a.svdquant_lora_b", safetensors.BF16, 2, 2)}, "quantised by SVDQuant"},
		"FP8 without scales": {parts{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("scaled_fp8", safetensors.F8_E4M3, 2)}, "quantised by ComfyUI, whose scales are missing"},
		"integers alone":     {parts{zeroed("a.weight", safetensors.U8, 2, 2)}, "is quantised in no layout that is known"},
		"experts of NVFP4":   {parts{zeroed("e.down_proj", safetensors.U8, 2, 2, 8), zeroed("e.down_proj_weight_scale", safetensors.F8_E4M3, 2, 2, 1)}, "no layout has U8 [2,2,8] with scales F8_E4M3 [2,2,1]"},
		"a smoothed weight":  {parts{f32("a.weight", 2, 2), zeroed("a.pre_quant_scale", safetensors.BF16, 2)}, "quantised by ModelOpt, with smoothed weights"},
		"NVFP4 of two kinds": {parts{zeroed("a.weight", safetensors.U8, 128, 32), zeroed("a.weight_scale", safetensors.F8_E4M3, 128, 4), f32("a.weight_scale_2")}, `tensor "a.weight": no config.json specifies the order of its values and scales`},
		"MXFP8 of two kinds": {parts{zeroed("a.weight", safetensors.F8_E4M3, 128, 128), zeroed("a.weight_scale", safetensors.U8, 128, 4)}, `tensor "a.weight": no config.json specifies the order of its scales`},
	} {
		m := checkpoint(c.parts...)
		dequantizes(t, m, "", c.want)
		_, err := quant.Layouts(m, nil)
		require.ErrorContains(t, err, c.want, title)
		_, _, err = quant.Quantize(m, quant.Recipe{Scheme: quant.Int8})
		require.Error(t, err, title)
	}

	// A tensor that is not a weight, or has no scale, is plain.
	m := checkpoint(
		zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("b.weight", safetensors.I8, 2), zeroed("attn.bias", safetensors.U8, 1, 1, 2, 2),
		zeroed("c.codebooks", safetensors.F32, 2, 2), zeroed("c.position_ids", safetensors.I64, 1, 2), zeroed("d.weight", safetensors.I64, 2, 2),
	)
	require.Equal(t, m, must(quant.Dequantize(m, nil)))
}

// TestMethodWithoutTensors: a config that names a method with which no tensor is quantised is an
// error.
func TestMethodWithoutTensors(t *testing.T) {
	m := checkpoint(zeroed("a.B", safetensors.I32, 2, 2), zeroed("a.s", safetensors.F16, 2, 2), zeroed("a.workspace", safetensors.I32, 2))
	for _, name := range quant.Methods() {
		if name == "auto-round" || name == "mlx" { // their configs need further keys
			continue
		}
		for _, tensors := range []map[string]safetensors.Tensor{m, nil} {
			_, err := quant.Dequantize(tensors, []byte(method(name, object{})))
			require.EqualError(t, err, fmt.Sprintf("safetensors: the config specifies quant_method %q, but no tensor is quantised in one of its layouts", name))
		}
	}
	_, err := quant.Dequantize(m, []byte(method("gptq", object{"is_marlin_format": true})))
	require.ErrorContains(t, err, "is_marlin_format: true: unsupported operation")
}

// TestHarmlessKeys: configs as the Python packages write them are accepted.
func TestHarmlessKeys(t *testing.T) {
	fp8 := checkpoint(zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32, 1))
	words := checkpoint(zeroed("a.qweight", safetensors.I32, 4, 32), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32))
	for config, tensors := range map[string]map[string]safetensors.Tensor{
		`{"quant_method":"fp8","activation_scheme":"dynamic","fmt":"e4m3","scale_fmt":"ue8m0","weight_block_size":[128,128],"modules_to_not_convert":["lm_head"],"packed_modules_mapping":{}}`: fp8,
		`{"quant_method":"fp8","activation_scheme":"static","ignored_layers":["lm_head"],"kv_cache_scheme":{"num_bits":8,"type":"float"}}`:                                                     fp8,
		`{"quant_method":"fbgemm_fp8","activation_scale_ub":1200.0,"modules_to_not_convert":["a"]}`:                                                                                            fp8,
		`{"quant_method":"compressed-tensors","version":"0.20.0","format":"float-quantized","quantization_status":"compressed","global_compression_ratio":1.5,"ignore":["lm_head"],"kv_cache_scheme":null,
			"sparsity_config":{"format":"dense","global_sparsity":0.1,"ignore":["x"],"registry_requires_subclass":false,"sparsity_structure":"unstructured","targets":["Linear"]},"transform_config":{},
			"config_groups":{"group_0":{"format":"float-quantized","input_activations":{"num_bits":8},"output_activations":null,"targets":["Linear"],
				"weights":{"actorder":"static","block_structure":null,"dynamic":false,"group_size":null,"num_bits":8,"observer":"minmax","observer_kwargs":{"x":1},"scale_dtype":"x","strategy":"tensor","symmetric":true,"type":"float","zp_dtype":"x"}}}}`: fp8,
		`{"quant_method":"modelopt","quant_algo":"FP8","config_groups":{"group_0":{"weights":{"num_bits":8}}},"ignore":["lm_head"],"kv_cache_quant_algo":"FP8","kv_cache_scheme":{"x":1},"producer":{"name":"modelopt"},"group_size":16}`: fp8,
		`{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{"a":{"quant_algo":"FP8"},"b":{"quant_algo":"NVFP4","group_size":16},"c":null}}`:                                                                    fp8,
		`{"quant_method":"gptq","bits":4,"group_size":32,"desc_act":true,"static_groups":true,"sym":true,"lm_head":false,"method":"gptq","format":"gptq","checkpoint_format":"gptq","pack_dtype":"int32","rotation":null,"adapter":null,"dynamic":{},
			"meta":{"quantizer":["gptqmodel:7.7.0"],"damp_percent":0.05},"is_marlin_format":false,"damp_percent":0.1,"true_sequential":true,"model_name_or_path":null,"model_file_base_name":"model"}`: words,
		`{"quant_method":"gptq","bits":4,"group_size":-1,"desc_act":true}`: words, // a single group
		`{"quant_method":"auto-round","autoround_version":"0.16.1","bits":4,"group_size":32,"sym":true,"data_type":"int","packing_format":"auto_round:auto_gptq","iters":200,"nsamples":128,"seqlen":2048,"rotation_config":{},"extra_config":{".*b$":{"bits":8},"b":{"bits":16,"data_type":"float"}}}`: words,
	} {
		dequantized(t, tensors, `{"quantization_config":`+config+`}`)
	}
}

// TestIgnoredModules: values without scales stay unchanged if the config lists their modules as
// exceptions, under the key of each package.
func TestIgnoredModules(t *testing.T) {
	for name, key := range map[string]string{
		"fp8": "modules_to_not_convert", "fbgemm_fp8": "modules_to_not_convert", "compressed-tensors": "ignore", "modelopt": "exclude_modules",
	} {
		m := checkpoint(
			zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32, 1), zeroed("cast.weight", safetensors.F8_E4M3, 2, 2),
		)
		config := object{"format": "float-quantized", "config_groups": object{"g": object{"targets": []string{"Linear"}, "weights": object{"num_bits": 8, "type": "float", "strategy": "tensor"}}}}
		if name != "compressed-tensors" {
			config = object{}
		}
		_, err := quant.Dequantize(m, []byte(method(name, config)))
		require.ErrorContains(t, err, `tensor "cast.weight": F8_E4M3 [2,2] belongs to a quantised tensor, but its scales`, name)
		config[key] = []string{"cast"}
		plain := dequantized(t, m, method(name, config))
		require.Equal(t, m["cast.weight"], plain["cast.weight"])
	}
}

// TestMarkers: a marker of ComfyUI names the layout of its module, and is not in the result.
func TestMarkers(t *testing.T) {
	m := checkpoint(
		zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32), bytesOf("a.comfy_quant", `{"format":"float8_e4m3fn"}`),
		zeroed("plain.weight", safetensors.F8_E4M3, 2, 2), // in a model with markers, a module without one is plain
	)
	layouts := must(quant.Layouts(m, nil))
	eight := quant.Layout{Method: "comfyui", Bits: 8}
	require.Equal(t, map[string]quant.Layout{"a.weight": eight, "a.weight_scale": eight, "a.comfy_quant": {Method: "comfyui"}}, layouts)

	// Open uses the marker in the metadata, and the metadata of the result lacks it.
	delete(m, "a.comfy_quant")
	folder := t.TempDir()
	name := filepath.Join(folder, "model.safetensors")
	const key = "_quantization_metadata"
	require.NoError(t, safetensors.WriteFile(name, m, map[string]string{"format": "pt", key: `{"format_version":"1.0","layers":{"a":{"format":"float8_e4m3fn"}}}`}))
	f := must(quant.Open(name))
	require.Equal(t, map[string]string{"format": "pt"}, f.Metadata())
	x := must(f.Tensor("a.weight"))
	require.Equal(t, safetensors.F32, x.DType())
	require.NoError(t, f.Close()) // otherwise Windows would not replace the file
	require.NoError(t, safetensors.WriteFile(name, m, map[string]string{key: "{"}))
	_, err := quant.Open(name)
	require.EqualError(t, err, "safetensors: open "+name+": the config: unexpected end of JSON input")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), []byte(method("fp8", object{"ignored_layers": []string{"plain"}})), 0o666))
	_, err = quant.Open(name) // the order of NVFP4 values differs between ComfyUI and ModelOpt
	require.EqualError(t, err, "safetensors: open "+name+`: _quantization_metadata of ComfyUI in its metadata, though the config specifies quant_method "fp8"`)
}

// TestBlockWithoutStrategy: blocks have the size that the config gives, and not 128×128.
func TestBlockWithoutStrategy(t *testing.T) {
	tensors := map[string]safetensors.Tensor{
		"a.weight":       must(safetensors.NewTensor(safetensors.F8_E4M3, []int{1, 4}, []byte{0x38, 0x38, 0x38, 0x38})), // 1
		"a.weight_scale": must(safetensors.NewTensor(safetensors.F32, []int{1, 2}, []float32{2, 3})),
	}
	plain := dequantized(t, tensors, compressedConfig("float-quantized", object{"num_bits": 8, "type": "float", "block_structure": []int{1, 2}}))
	require.Equal(t, []float32{2, 2, 3, 3}, must(safetensors.Append[float32](nil, plain["a.weight"])))
}
