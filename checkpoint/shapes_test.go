package checkpoint_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// shaped returns tensors of zeros. Each line of shapes has names and a shape; * stands for the layers 0 and 1, and _ in
// place of a length for 11, which the config does not determine.
func shaped(t *testing.T, shapes string) (model map[string]safetensors.Tensor, free map[string][]bool) {
	t.Helper()
	model, free = make(map[string]safetensors.Tensor), make(map[string][]bool)
	for line := range strings.Lines(shapes) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		var shape []int
		var any []bool
		for dim := range strings.SplitSeq(fields[len(fields)-1], "x") {
			n := 11
			if dim != "_" {
				_, err := fmt.Sscan(dim, &n)
				require.NoError(t, err)
			}
			shape, any = append(shape, n), append(any, dim == "_")
		}
		for _, name := range fields[:len(fields)-1] {
			for _, layer := range []string{"0", "1"} {
				name := strings.Replace(name, "*", layer, 1)
				model[name], free[name] = zeros(t, shape...), any
			}
		}
	}
	return model, free
}

func zeros(t *testing.T, shape ...int) safetensors.Tensor {
	t.Helper()
	n := 1
	for _, dim := range shape {
		n *= dim
	}
	x, err := safetensors.NewTensor(safetensors.F32, shape, make([]float32, n))
	require.NoError(t, err)
	return x
}

// TestShapes changes each length of each tensor of small models by one, in one layer and in both: the config determines
// it, or there is no finding.
func TestShapes(t *testing.T) {
	const llama = `
		model.layers.*.self_attn.q_proj.weight 8x8
		model.layers.*.self_attn.k_proj.weight model.layers.*.self_attn.v_proj.weight 4x8
		model.layers.*.self_attn.o_proj.weight 8x8
		model.layers.*.self_attn.q_proj.bias 8
		model.layers.*.self_attn.k_proj.bias model.layers.*.self_attn.v_proj.bias 4
		model.layers.*.mlp.gate_proj.weight model.layers.*.mlp.up_proj.weight 12x8
		model.layers.*.mlp.down_proj.weight 8x12
		model.layers.*.input_layernorm.weight model.layers.*.post_attention_layernorm.weight model.norm.weight 8
		model.embed_tokens.weight _x8`
	for name, c := range map[string]struct{ config, shapes string }{
		"llama":             {`"model_type":"llama","hidden_size":8,"num_attention_heads":2,"num_key_value_heads":1,"intermediate_size":12,"num_hidden_layers":2`, llama},
		"a size of heads":   {`"model_type":"qwen2","hidden_size":8,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":2,"intermediate_size":12,"num_hidden_layers":2`, llama},
		"as many keys":      {`"model_type":"granite","hidden_size":8,"num_attention_heads":1,"intermediate_size":12,"num_hidden_layers":2`, strings.ReplaceAll(llama, "4", "8")},
		"bert":              {`"model_type":"bert","hidden_size":8,"num_attention_heads":2,"intermediate_size":12,"num_hidden_layers":2,"max_position_embeddings":10,"type_vocab_size":2`, layersOfBERT},
		"gpt2":              {`"model_type":"gpt2","n_embd":8,"n_head":2,"n_layer":2,"n_positions":10`, gpt2},
		"gpt2 with n_inner": {`"model_type":"gpt2","n_embd":8,"n_inner":16,"n_head":2,"n_layer":2,"n_positions":10`, strings.ReplaceAll(gpt2, "32", "16")},
	} {
		t.Run(name, func(t *testing.T) {
			model, free := shaped(t, c.shapes)
			judged := func(model map[string]safetensors.Tensor) []string {
				return check(t, files(map[string]string{"config.json": "{" + c.config + "}", "model.safetensors": written(t, model)}))
			}
			require.Empty(t, judged(model))
			for _, tensor := range slices.Sorted(maps.Keys(model)) {
				for at := range free[tensor] {
					if strings.Contains(tensor, "embeddings.") && at == 1 || strings.HasPrefix(tensor, "embeddings.LayerNorm") || strings.HasPrefix(tensor, "embeddings.word") {
						continue // the shapes of these are judged by their use alone
					}
					shape := slices.Clone(model[tensor].Shape())
					shape[at]++
					other := maps.Clone(model)
					for _, name := range slices.Compact([]string{tensor, strings.Replace(tensor, ".1.", ".0.", 1)}) {
						other[name] = zeros(t, shape...)
						found := judged(other)
						if free[tensor][at] {
							require.Empty(t, found, "%s %v", name, shape)
							continue
						}
						require.NotEmpty(t, found, "%s %v", name, shape)
						require.Contains(t, found[0], name[:strings.LastIndexByte(name, '.')])
					}
				}
			}
		})
	}
}

// layersOfBERT are the tensors of a BERT with 2 layers.
const layersOfBERT = `
	encoder.layer.*.attention.self.query.weight encoder.layer.*.attention.self.key.weight encoder.layer.*.attention.self.value.weight encoder.layer.*.attention.output.dense.weight 8x8
	encoder.layer.*.attention.self.query.bias encoder.layer.*.attention.self.key.bias encoder.layer.*.attention.self.value.bias encoder.layer.*.attention.output.dense.bias 8
	encoder.layer.*.attention.output.LayerNorm.weight encoder.layer.*.attention.output.LayerNorm.bias encoder.layer.*.output.LayerNorm.weight encoder.layer.*.output.LayerNorm.bias 8
	encoder.layer.*.intermediate.dense.weight 12x8
	encoder.layer.*.intermediate.dense.bias 12
	encoder.layer.*.output.dense.weight 8x12
	encoder.layer.*.output.dense.bias 8
	embeddings.position_embeddings.weight 10x8
	embeddings.token_type_embeddings.weight 2x8
	embeddings.word_embeddings.weight _x8
	embeddings.LayerNorm.weight embeddings.LayerNorm.bias 8`

const gpt2 = `
	h.*.attn.c_attn.weight 8x24
	h.*.attn.c_attn.bias 24
	h.*.attn.c_proj.weight 8x8
	h.*.attn.c_proj.bias h.*.mlp.c_proj.bias h.*.ln_1.weight h.*.ln_1.bias h.*.ln_2.weight h.*.ln_2.bias ln_f.weight ln_f.bias 8
	h.*.mlp.c_fc.weight 8x32
	h.*.mlp.c_fc.bias 32
	h.*.mlp.c_proj.weight 32x8
	wte.weight _x8
	wpe.weight 10x8`

// TestLayersWithoutConfig: where the config does not determine a shape, all layers have the same.
func TestLayersWithoutConfig(t *testing.T) {
	model, _ := shaped(t, `
		model.layers.*.self_attn.q_proj.weight model.layers.*.self_attn.o_proj.weight 8x8
		model.layers.*.self_attn.q_proj.bias 8
		model.layers.*.self_attn.q_norm.weight model.layers.*.self_attn.k_norm.weight 4
		model.layers.*.self_attn.k_proj.weight model.layers.*.self_attn.v_proj.weight 4x8
		model.layers.*.mlp.gate_proj.weight model.layers.*.mlp.up_proj.weight 12x8
		model.layers.*.mlp.down_proj.weight 8x12
		model.layers.*.input_layernorm.weight model.layers.*.post_attention_layernorm.weight model.norm.weight 8
		model.embed_tokens.weight 11x8`)
	odd := maps.Clone(model)
	odd["model.layers.1.mlp.up_proj.weight"] = zeros(t, 13, 8)
	for _, config := range []string{
		`"model_type":"qwen3","num_attention_heads":2,"num_key_value_heads":1`,
		`"model_type":"llama","num_attention_heads":2,"num_key_value_heads":1`,
		`"model_type":"llama","hidden_size":8,"num_key_value_heads":1`,
		`"model_type":"llama","hidden_size":8,"num_attention_heads":0,"num_key_value_heads":0`,
		`"model_type":"llama","hidden_size":8,"num_attention_heads":3,"num_key_value_heads":1`,
	} {
		judged := func(model map[string]safetensors.Tensor) []string {
			return check(t, files(map[string]string{"config.json": "{" + config + `,"num_hidden_layers":2}`, "model.safetensors": written(t, model)}))
		}
		require.Empty(t, judged(model), config)
		found := judged(odd)
		require.Len(t, found, 1, config)
		require.Contains(t, found[0], `that all layers are alike, but "model.layers.0.mlp.up_proj.weight" has [12,8] and "model.layers.1.mlp.up_proj.weight" has [13,8]`)
	}
}

// TestNamesLikeLayers: what stands in place of the number of a layer may be a name, or a number that no model has.
func TestNamesLikeLayers(t *testing.T) {
	model, _ := shaped(t, gpt2)
	for _, name := range []string{"a", "b", "-1", "100001", "99999999999999999999"} {
		model["h."+name+".weight"] = zeros(t, 8)
	}
	require.Empty(t, check(t, files(map[string]string{"config.json": `{"model_type":"gpt2","n_embd":8,"n_head":2,"n_layer":2}`, "model.safetensors": written(t, model)})))
}

// TestManyStacks: up to 64 stacks of layers are judged.
func TestManyStacks(t *testing.T) {
	one, _ := shaped(t, gpt2)
	for n, want := range map[int]int{64: 1, 65: 0} {
		model := make(map[string]safetensors.Tensor)
		for i := range n {
			for name, x := range one {
				model[fmt.Sprintf("m%d.%s", i, name)] = x
			}
		}
		delete(model, "m7.h.1.ln_1.weight")
		delete(model, "m7.h.1.ln_1.bias")
		found := check(t, files(map[string]string{"config.json": `{"model_type":"gpt2","n_layer":2}`, "model.safetensors": written(t, model)}))
		require.Len(t, found, want, "%d stacks", n)
	}
}

// TestManyLayers: the missing tensors of the first 10,000 layers are counted, even if a config has more layers.
func TestManyLayers(t *testing.T) {
	names := []string{"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"}
	for _, part := range strings.Fields("input_layernorm post_attention_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj") {
		names = append(names, "model.layers.0."+part+".weight")
	}
	for layers, more := range map[int]int{10_000: 9*9999 - 1, 10_002: 9*10_000 - 1} {
		found := check(t, files(map[string]string{
			"config.json": fmt.Sprintf(`{"model_type":"llama","num_hidden_layers":%d}`, layers), "model.safetensors": weightsOf(t, names...),
		}))
		require.Len(t, found, 1)
		require.Contains(t, found[0], fmt.Sprintf(`the tensor "model.layers.1.input_layernorm.weight" and %d more`, more))
	}
}

// TestShapeText: a finding about a shape has a word for each length that the config does not determine. A part of a
// config is judged if at most three other parts contain it.
func TestShapeText(t *testing.T) {
	model, _ := shaped(t, gpt2)
	model["wte.weight"] = zeros(t, 11, 9)
	config := `{"model_type":"gpt2","n_embd":8,"n_head":2,"n_layer":2,"n_positions":10}`
	for depth := range 5 {
		found := check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)}))
		require.Equal(t, depth < 4, strings.Contains(strings.Join(found, "\n"), "has the shape [any,8], but it has [11,9]"), "depth %d: %v", depth, found)
		config = `{"part":` + config + `}`
	}
}
