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
// that is not an integer makes no model. Both are findings if the tensors have other shapes, in configs within the
// config, too.
func TestConfigKeys(t *testing.T) {
	in := func(prefix string) string { return strings.ReplaceAll(llama, "P", prefix) }
	for name, c := range map[string]struct{ config, shapes, keys, optional string }{
		"llama": {`{"model_type":"llama","architectures":["LlamaForCausalLM"],` + sizes + `"head_dim":4}`, in("model") + "lm_head.weight 11x8", "vocab_size hidden_size intermediate_size num_hidden_layers", "head_dim"},
		"tied":  {`{"model_type":"qwen2","architectures":["Qwen2ForCausalLM"],` + sizes + `"tie_word_embeddings":true}`, in("model") + "model.layers.*.self_attn.q_proj.bias 8\nmodel.layers.*.self_attn.k_proj.bias model.layers.*.self_attn.v_proj.bias 4", "vocab_size hidden_size intermediate_size num_hidden_layers num_key_value_heads tie_word_embeddings", ""},
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
					require.Contains(t, strings.Join(found, "\n"), "which is not an integer")
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

// TestHeadOfWhisper: the head of a Whisper, even without an encoder, is called proj_out.
func TestHeadOfWhisper(t *testing.T) {
	model := map[string]safetensors.Tensor{"model.decoder.embed_tokens.weight": zeros(t, 2, 2), "proj_out.weight": zeros(t, 2, 2)}
	untied := func() string {
		found := check(t, files(map[string]string{"config.json": `{"model_type":"whisper","architectures":["WhisperForCausalLM"],"tie_word_embeddings":false}`, "model.safetensors": written(t, model)}))
		return strings.Join(found, "; ")
	}
	require.NotContains(t, untied(), "that the head is not tied")
	delete(model, "proj_out.weight")
	require.Contains(t, untied(), "that the head is not tied")
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

// TestBiases: a setting of the config, or its default, decides whether modules have a bias.
func TestBiases(t *testing.T) {
	text := strings.ReplaceAll(llama, "P", "model") + "lm_head.weight 11x8\n"
	const (
		attention = `
			model.layers.*.self_attn.q_proj.bias model.layers.*.self_attn.o_proj.bias 8
			model.layers.*.self_attn.k_proj.bias model.layers.*.self_attn.v_proj.bias 4
			`
		mlp = `
			model.layers.*.mlp.gate_proj.bias model.layers.*.mlp.up_proj.bias 12
			model.layers.*.mlp.down_proj.bias 8
			`
		both    = `,"attention_bias":true,"mlp_bias":true`
		config  = `"model_type":"llama","architectures":["LlamaForCausalLM"],"head_dim":4,` + sizes + `"pad_token_id":0`
		neox    = `"model_type":"gpt_neox","architectures":["GPTNeoXForCausalLM"],"vocab_size":11,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":2,"tie_word_embeddings":true`
		llava   = `"model_type":"llava","architectures":["LlavaForConditionalGeneration"]`
		deberta = `"model_type":"deberta-v2","architectures":["DebertaV2Model"]`
		linear  = "multi_modal_projector.linear_1.weight multi_modal_projector.linear_2.weight 8x8\nvision_tower.x 8\n"
	)
	layersOfNeoX := `
		gpt_neox.layers.*.attention.query_key_value.weight 24x8
		gpt_neox.layers.*.attention.query_key_value.bias 24
		gpt_neox.layers.*.attention.dense.weight 8x8
		gpt_neox.layers.*.mlp.dense_h_to_4h.weight 12x8
		gpt_neox.layers.*.mlp.dense_h_to_4h.bias 12
		gpt_neox.layers.*.mlp.dense_4h_to_h.weight 8x12
		gpt_neox.layers.*.mlp.dense_4h_to_h.bias gpt_neox.layers.*.input_layernorm.weight gpt_neox.layers.*.input_layernorm.bias 8
		gpt_neox.layers.*.post_attention_layernorm.weight gpt_neox.layers.*.post_attention_layernorm.bias 8
		gpt_neox.final_layer_norm.weight gpt_neox.final_layer_norm.bias 8
		gpt_neox.embed_in.weight 11x8
		`
	for _, c := range []struct {
		shapes, config string
		found          string // texts of the findings, one a line
	}{
		{text, config, ""},
		{text, config + `,"attention_bias":false,"mlp_bias":false`, ""},
		{text, config + both, "attention_bias true, but no \"self_attn.q_proj.bias\"\nmlp_bias true, but no \"mlp.gate_proj.bias\""},
		{text + attention + mlp, config, "nothing of attention_bias, which is then false\nnothing of mlp_bias, which is then false"},
		{text + attention + mlp, config + `,"attention_bias":true`, "nothing of mlp_bias"},
		{text + attention + mlp, config + both, ""},
		{text + "model.layers.*.self_attn.o_proj.bias 8", config, "nothing of attention_bias"},
		{text + "model.layers.*.self_attn.q_proj.bias 8", config + `,"attention_bias":true`, "attention_bias true, but no \"self_attn.k_proj.bias\""},
		{layersOfNeoX + "gpt_neox.layers.*.attention.dense.bias 8", neox, ""},
		{layersOfNeoX, neox, "nothing of attention_bias, which is then true, but no \"attention.dense.bias\""},
		{layersOfNeoX, neox + `,"attention_bias":true`, "attention_bias true, but no \"attention.dense.bias\""},
		{layersOfNeoX, neox + `,"attention_bias":false`, "attention_bias false, but \"gpt_neox.layers.0.attention.query_key_value.bias\""},
		{linear + "multi_modal_projector.linear_1.bias multi_modal_projector.linear_2.bias 8", llava, ""},
		{linear + "multi_modal_projector.linear_1.bias multi_modal_projector.linear_2.bias 8", llava + `,"multimodal_projector_bias":false`, "multimodal_projector_bias false"},
		{linear, llava, "nothing of multimodal_projector_bias, which is then true"},
		{linear, llava + `,"multimodal_projector_bias":false`, ""},
		{linear, llava + `,"multimodal_projector_bias":null`, ""},
		{linear, llava + `,"auto_map":{}`, ""},
		{"encoder.rel_embeddings.weight 8x8", deberta + `,"relative_attention":true`, "has no complete layer"},
		{"embeddings.x 8", deberta + `,"relative_attention":true`, "has no complete layer\nrelative_attention true, but no \"encoder.rel_embeddings.weight\""},
		{"encoder.rel_embeddings.weight 8x8", deberta, "has no complete layer\nnothing of relative_attention, which is then false, but \"encoder.rel_embeddings.weight\""},
	} {
		model, _ := shaped(t, c.shapes)
		found := check(t, files(map[string]string{"config.json": "{" + c.config + "}", "model.safetensors": written(t, model)}))
		want := slices.DeleteFunc(strings.Split(c.found, "\n"), func(text string) bool { return text == "" })
		require.Len(t, found, len(want), "%s: %v", c.config, found)
		for i := range want {
			require.Contains(t, found[i], want[i], c.config)
		}
	}
}

// TestKindsOfNumbers: a number of the architecture that is a text, a truth value or a fraction makes no model, in
// architectures that Check does not know, too. Other numbers may be of any kind.
func TestKindsOfNumbers(t *testing.T) {
	for field, found := range map[string]int{
		`"hidden_size":3`: 0, `"hidden_size":3.0`: 1, `"hidden_size":3e0`: 1, `"hidden_size":"3"`: 1, `"hidden_size":true`: 1, `"hidden_size":null`: 0, `"hidden_size":[3]`: 0,
		`"decoder_layers":3.0`: 1, `"norm_eps":1.0`: 0, `"rope":{"theta":1e4}`: 0, `"max_position_embeddings":3.0`: 0, `"text_config":{"model_type":"new_text","num_experts":4.0}`: 1,
		`"text_config":{"num_experts":4.0}`: 0, `"hidden_size":3.0,"auto_map":{}`: 0,
	} {
		config := `{"model_type":"new","architectures":["New"],` + field + `}`
		texts := check(t, files(map[string]string{"config.json": config, "model.safetensors": weights(t, map[string]float32{"x": 1})}))
		require.Len(t, texts, found, field)
		if found > 0 {
			require.Contains(t, texts[0], "which is not an integer", field)
		}
	}
	model, _ := shaped(t, strings.ReplaceAll(llama, "P", "model")+"lm_head.weight 11x8")
	whole := `{"model_type":"llama","architectures":["LlamaForCausalLM"],"max_position_embeddings":9,` + sizes + `"head_dim":4}`
	for old, wrong := range map[string]string{"": "", `_layers":2`: `_layers":2.0`, `vocab_size":11`: `vocab_size":null`, `heads":2`: `heads":true`, `embeddings":9`: `embeddings":9.0`} {
		found := check(t, files(map[string]string{"config.json": strings.Replace(whole, old, wrong, 1), "model.safetensors": written(t, model)}))
		require.Len(t, slices.Compact(found), min(len(old), 1), wrong)
	}
}

// TestHeadsDivideWidth: without head_dim, the number of heads divides the width of the model.
func TestHeadsDivideWidth(t *testing.T) {
	const bert = `"model_type":"bert","architectures":["BertModel"],"vocab_size":11,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"max_position_embeddings":10`
	model, _ := shaped(t, layersOfBERT)
	for heads, found := range map[string]int{`2`: 0, `3`: 1, `3,"head_dim":4`: 0, `0`: 0} {
		config := "{" + bert + `,"num_attention_heads":` + heads + "}"
		require.Len(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), found, heads)
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
