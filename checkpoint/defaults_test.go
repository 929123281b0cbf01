package checkpoint_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// llama are the tensors of a model, with P in place of the text before the layers, and sizes its numbers.
const llama = `
	P.layers.*.self_attn.q_proj.weight P.layers.*.self_attn.o_proj.weight 8x8
	P.layers.*.self_attn.k_proj.weight P.layers.*.self_attn.v_proj.weight 4x8
	P.layers.*.mlp.gate_proj.weight P.layers.*.mlp.up_proj.weight 12x8
	P.layers.*.mlp.down_proj.weight 8x12
	P.layers.*.input_layernorm.weight P.layers.*.post_attention_layernorm.weight P.norm.weight 8
	P.embed_tokens.weight 11x8
	`

const sizes = `"vocab_size":11,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"num_key_value_heads":1,`

// TestConfigKeys: without a key that decides shapes or names, transformers takes the default of the class, and a value
// that is not a number makes no model. Both are findings if the tensors have other shapes, in configs within the
// config, too.
func TestConfigKeys(t *testing.T) {
	in := func(prefix string) string { return strings.ReplaceAll(llama, "P", prefix) }
	for name, c := range map[string]struct{ config, shapes, keys, optional string }{
		"llama": {`{"model_type":"llama","architectures":["LlamaForCausalLM"],` + sizes + `"head_dim":4}`, in("model") + "lm_head.weight 11x8", "vocab_size hidden_size intermediate_size num_hidden_layers", "head_dim"},
		"tied":  {`{"model_type":"qwen2","architectures":["Qwen2ForCausalLM"],` + sizes + `"tie_word_embeddings":true}`, in("model"), "vocab_size hidden_size intermediate_size num_hidden_layers num_key_value_heads tie_word_embeddings", ""},
		"tied by default": {`{"model_type":"gemma2","architectures":["Gemma2ForCausalLM"],` + sizes + `"head_dim":4}`, in("model") +
			"model.layers.*.pre_feedforward_layernorm.weight model.layers.*.post_feedforward_layernorm.weight 8", "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads head_dim", ""},
		"within": {`{"model_type":"llava","architectures":["LlavaForConditionalGeneration"],"text_config":{"model_type":"mistral",` + sizes + `"head_dim":4}}`,
			in("model.language_model") + "lm_head.weight 11x8\nmodel.multi_modal_projector.x model.vision_tower.x 8", "text_config.vocab_size text_config.hidden_size text_config.intermediate_size text_config.num_hidden_layers text_config.num_key_value_heads", "text_config.head_dim"},
		"gpt2": {`{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":11,"n_embd":8,"n_head":2,"n_layer":2,"n_positions":10}`, gpt2, "vocab_size n_embd n_layer n_positions", ""},
	} {
		t.Run(name, func(t *testing.T) {
			model, _ := shaped(t, c.shapes)
			weights := written(t, model)
			judged := func(config any) []string {
				text, err := json.Marshal(config)
				require.NoError(t, err)
				return check(t, files(map[string]string{"config.json": string(text), "model.safetensors": weights}))
			}
			parsed := func() (config map[string]any) {
				require.NoError(t, json.Unmarshal([]byte(c.config), &config))
				return config
			}
			require.Empty(t, judged(parsed()))
			for _, path := range strings.Fields(c.keys + " " + c.optional) {
				config := parsed()
				section, key := config, path
				if outer, inner, found := strings.Cut(path, "."); found {
					section, key = config[outer].(map[string]any), inner
				}
				delete(section, key)
				if path == c.optional {
					require.Empty(t, judged(config), "without %s", path)
				} else {
					require.NotEmpty(t, judged(config), "without %s", path)
				}
				partial := maps.Clone(config)
				delete(partial, "architectures")
				if !strings.HasSuffix(key, "layers") {
					require.Empty(t, judged(partial), "a config of another library, without %s", path)
				}
				if key == "tie_word_embeddings" || path == c.optional {
					continue
				}
				for _, value := range []any{nil, "8", []int{8}, 8.5} {
					section[key] = value
					if value == nil && slices.Contains([]string{"num_key_value_heads", "head_dim"}, key) {
						continue
					}
					found := judged(config)
					require.NotEmpty(t, found, "%s %v", path, value)
					require.Contains(t, strings.Join(found, "\n"), path+" ")
					require.Contains(t, strings.Join(found, "\n"), "which is not a number")
				}
			}
		})
	}
}

// TestUntiedHeads: a model of language whose head is not tied stores it, whatever the architecture calls it.
func TestUntiedHeads(t *testing.T) {
	config := `{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"vocab_size":11,"n_embd":8,"n_head":2,"n_layer":2,"n_positions":10`
	for more, found := range map[string]int{"": 0, `,"tie_word_embeddings":true`: 0, `,"tie_word_embeddings":false`: 1} {
		model, _ := shaped(t, strings.ReplaceAll(gpt2, "_x8", "11x8"))
		judged := func() []string {
			return check(t, files(map[string]string{"config.json": config + more + "}", "model.safetensors": written(t, model)}))
		}
		require.Len(t, judged(), found, more)
		model["lm_head.weight"] = model["wte.weight"]
		require.Empty(t, judged(), more)
		other, err := safetensors.NewTensor(model["wte.weight"].DType(), []int{11, 8}, slices.Repeat([]float32{7}, 88))
		require.NoError(t, err)
		model["lm_head.weight"] = other
		require.Len(t, judged(), 1-found, more)
	}
}

// TestNamesOfDTypes: transformers does not open a config with a dtype that PyTorch does not have.
func TestNamesOfDTypes(t *testing.T) {
	for name, found := range map[string]int{"float32": 0, "torch.float32": 0, "float": 0, "auto": 1, "fp32": 1, "3": 1} {
		for _, key := range []string{"dtype", "torch_dtype"} {
			config := `{"model_type":"new","architectures":["New"],"` + key + `":"` + name + `"}`
			config = strings.ReplaceAll(config, `"3"`, "3")
			require.Len(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": weights(t, map[string]float32{"x": 1})})), found, config)
		}
	}
}

// TestLabels: the head of a class has a row for each label of the config.
func TestLabels(t *testing.T) {
	model, _ := shaped(t, strings.ReplaceAll(llama, "P", "model"))
	for rows, found := range map[int]map[string]int{
		2: {"": 0, `,"num_labels":2`: 0, `,"num_labels":3`: 1, `,"id2label":{"0":"a","1":"b"}`: 0, `,"id2label":{"0":"a"}`: 1},
		3: {"": 1, `,"num_labels":3`: 0, `,"id2label":{"0":"a","1":"b","2":"c"}`: 0},
	} {
		model["score.weight"] = zeros(t, rows, 8)
		for more, n := range found {
			config := `{"model_type":"llama","architectures":["LlamaForSequenceClassification"],` + sizes + `"head_dim":4` + more + `}`
			require.Len(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), n, "%d rows, %s", rows, more)
		}
	}
}

// TestBiases: a setting of the config decides whether modules have a bias.
func TestBiases(t *testing.T) {
	config := `{"model_type":"llama","architectures":["LlamaForCausalLM"],` + sizes + `"head_dim":4`
	plain := strings.ReplaceAll(llama, "P", "model") + "lm_head.weight 11x8"
	stored := plain + `
		model.layers.*.self_attn.q_proj.bias 8
		model.layers.*.mlp.gate_proj.bias 12`
	both := `,"attention_bias":true,"mlp_bias":true`
	for _, c := range []struct {
		shapes, more string
		found        int
	}{
		{plain, "", 0}, {plain, `,"attention_bias":false,"mlp_bias":false`, 0}, {plain, both, 2},
		{stored, "", 2}, {stored, `,"attention_bias":true`, 1}, {stored, both, 0},
	} {
		model, _ := shaped(t, c.shapes)
		require.Len(t, check(t, files(map[string]string{"config.json": config + c.more + "}", "model.safetensors": written(t, model)})), c.found, "%s %s", c.shapes, c.more)
	}
}

// TestHeadRows: the head has as many rows as the embedding, except in draft models.
func TestHeadRows(t *testing.T) {
	config := `{"model_type":"llama","architectures":["LlamaForCausalLM"],` + sizes + `"head_dim":4`
	for shape, found := range map[string]int{"lm_head.weight 11x8": 0, "lm_head.weight 12x8": 1, "lm_head.weight 12x8\nfc.weight 8x16": 0} {
		model, _ := shaped(t, strings.ReplaceAll(llama, "P", "model")+shape)
		require.Len(t, check(t, files(map[string]string{"config.json": config + "}", "model.safetensors": written(t, model)})), found, shape)
	}
	model, _ := shaped(t, strings.ReplaceAll(llama, "P", "model")+"lm_head.weight 11x8")
	model["model.embed_tokens.weight"] = zeros(t, 12, 8)
	require.Len(t, check(t, files(map[string]string{"config.json": config + "}", "model.safetensors": written(t, model)})), 1, "one finding about the embedding")
}

// TestOtherPrograms: a .bin of another program, below the model, is no finding. It is one under a name that libraries
// open, and a cut file of torch.save is one.
func TestOtherPrograms(t *testing.T) {
	model := weights(t, map[string]float32{"x": 1})
	for name, found := range map[string]int{"metal/model.bin": 0, "metal/pytorch_model.bin": 1, "pytorch_model.bin": 1} {
		require.Len(t, check(t, files(map[string]string{"model.safetensors": model, name: "GPT-OSS v1.0\x00\x00\x00\x00"})), found, name)
	}
	saved := torchFile(t, map[string]float32{"x": 1})
	require.Len(t, check(t, files(map[string]string{"model.safetensors": model, "metal/model.bin": saved[:len(saved)-9]})), 1)
	require.NotEmpty(t, check(t, files(map[string]string{"model.bin": "GPT-OSS v1.0\x00\x00\x00\x00"})))
}
