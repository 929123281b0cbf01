package checkpoint_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestComponents: the shapes of the tensors of a component of diffusers, and the number of its modules, follow from its
// config.
func TestComponents(t *testing.T) {
	for name, c := range map[string]struct{ config, shapes, keys string }{
		"unet": {`{"_class_name":"UNet2DConditionModel","in_channels":4,"out_channels":5,"block_out_channels":[8,16],"layers_per_block":2,"cross_attention_dim":6}`, `
			conv_in.weight 8x4x3x3
			conv_in.bias 8
			conv_out.weight 5x8x3x3
			conv_out.bias 5
			down_blocks.0.resnets.*.conv1.weight 8x8x3x3
			down_blocks.0.resnets.*.conv1.bias 8
			down_blocks.1.resnets.*.conv1.weight 16x8x3x3
			down_blocks.1.resnets.*.conv1.bias 16
			down_blocks.0.attentions.*.transformer_blocks.0.attn2.to_k.weight 8x6
			mid_block.attentions.0.transformer_blocks.0.attn2.to_k.weight 16x6`, "in_channels out_channels block_out_channels layers_per_block cross_attention_dim"},
		"autoencoder": {`{"_class_name":"AutoencoderKL","in_channels":3,"out_channels":5,"block_out_channels":[8,16],"layers_per_block":2,"latent_channels":4}`, `
			encoder.conv_in.weight 8x3x3x3
			encoder.conv_in.bias 8
			encoder.conv_out.weight 8x16x3x3
			encoder.conv_out.bias 8
			decoder.conv_in.weight 16x4x3x3
			decoder.conv_in.bias 16
			decoder.conv_out.weight 5x8x3x3
			decoder.conv_out.bias 5
			quant_conv.weight 8x8x1x1
			quant_conv.bias 8
			encoder.down_blocks.*.resnets.0.x encoder.down_blocks.*.resnets.1.x decoder.up_blocks.*.x 8`, "in_channels out_channels block_out_channels layers_per_block latent_channels"},
		"flux": {`{"_class_name":"FluxTransformer2DModel","in_channels":4,"out_channels":null,"patch_size":1,"num_layers":2,"num_single_layers":2,"num_attention_heads":2,"attention_head_dim":8,"joint_attention_dim":6}`, `
			x_embedder.weight 16x4
			context_embedder.weight 16x6
			proj_out.weight 4x16
			transformer_blocks.*.x single_transformer_blocks.*.x 8`, "in_channels out_channels num_layers num_single_layers num_attention_heads joint_attention_dim"},
	} {
		model, _ := shaped(t, c.shapes)
		judged := func(config any) string {
			text, err := json.Marshal(config)
			require.NoError(t, err)
			return strings.Join(check(t, files(map[string]string{"config.json": string(text), "diffusion_pytorch_model.safetensors": written(t, model)})), "; ")
		}
		for _, key := range append(strings.Fields(c.keys), "") {
			var config map[string]any
			require.NoError(t, json.Unmarshal([]byte(c.config), &config))
			switch n := config[key].(type) {
			case float64:
				config[key] = n + 1
			case []any:
				config[key] = append([]any{float64(7)}, n[1:]...)
			case nil:
				if key == "" {
					require.Empty(t, judged(config), name)
					continue
				}
				config[key] = 9
			}
			require.Contains(t, judged(config), `config: "config.json" says that `, "%s with another %s", name, key)
			delete(config, key)
			if key != "out_channels" { // the default is not known
				require.Empty(t, judged(config), "%s without %s", name, key)
			}
		}
	}
	for single, want := range map[string]string{"0": "", "2": `says that a "FluxTransformer2DModel" has 2 modules in "single_transformer_blocks", but none is stored`} {
		model, _ := shaped(t, "transformer_blocks.*.x 8")
		found := strings.Join(check(t, files(map[string]string{"config.json": `{"_class_name":"FluxTransformer2DModel","num_layers":2,"num_single_layers":` + single + "}", "diffusion_pytorch_model.safetensors": written(t, model)})), "; ")
		require.Equal(t, want == "", found == "", found)
		require.Contains(t, found, want)
	}
}

// TestLostParts: a component of diffusers has the parts that its class and its config demand, and each module has the parts
// that the others of its kind have. A module of another kind, such as a shortcut, may lack them.
func TestLostParts(t *testing.T) {
	const config = `{"_class_name":"UNet2DConditionModel","layers_per_block":1,"block_out_channels":[8,8],"down_block_types":["SimpleCrossAttnDownBlock2D","DownBlock2D"],"up_block_types":["UpBlock2D","CrossAttnUpBlock2D"]`
	model := make(map[string]safetensors.Tensor)
	add := func(modules string) {
		for module := range strings.FieldsSeq(modules) {
			shape := []int{8, 8, 1, 1}[:2+2*min(strings.Count(module, "conv"), 1)]
			model[module+".weight"], model[module+".bias"] = zeros(t, shape...), zeros(t, 8)
		}
	}
	add("conv_in conv_out time_embedding.linear_1 time_embedding.linear_2 up_blocks.0.resnets.1.conv_shortcut")
	for path := range strings.FieldsSeq("down_blocks.0 down_blocks.1 mid_block up_blocks.0 up_blocks.1") {
		for _, resnet := range []string{".resnets.0", ".resnets.1"}[:1+min(strings.Count(path, "up"), 1)] {
			for part := range strings.FieldsSeq("norm1 conv1 time_emb_proj norm2 conv2") {
				add(path + resnet + "." + part)
			}
		}
		if path != "up_blocks.1" {
			for part := range strings.FieldsSeq("to_q to_k to_v add_k_proj to_out.0 group_norm") {
				add(path + ".attentions.0." + part)
			}
		}
		if path == "up_blocks.1" { // of another kind than the other attentions
			add(path + ".attentions.0.proj_in " + path + ".attentions.0.transformer_blocks.0.attn1.to_q")
		}
	}
	judged := func(more string, tensors map[string]safetensors.Tensor) string {
		return strings.Join(check(t, files(map[string]string{"config.json": config + more + "}", "diffusion_pytorch_model.safetensors": written(t, tensors)})), "; ")
	}
	require.Empty(t, judged("", model))
	for lost, want := range map[string]string{
		"time_embedding.":                          "time_embedding.linear_1.weight",
		"conv_in.":                                 "conv_in.weight",
		"down_blocks.0.attentions.":                "down_blocks.0.attentions.0.",
		"up_blocks.1.attentions.":                  "up_blocks.1.attentions.0.",
		"down_blocks.1.resnets.":                   "down_blocks.1.resnets.0.",
		"mid_block.":                               "mid_block.resnets.0.",
		"up_blocks.0.resnets.0.time_emb_proj":      "up_blocks.0.resnets.0.time_emb_proj.bias",
		"mid_block.resnets.0.conv2":                "mid_block.resnets.0.conv2.bias",
		"down_blocks.0.attentions.0.to_k":          "down_blocks.0.attentions.0.to_k.bias",
		"down_blocks.0.attentions.0.to_out.0.bias": "down_blocks.0.attentions.0.to_out.0.bias",
		"up_blocks.0.resnets.1.conv_shortcut":      "",
	} {
		rest := maps.Clone(model)
		maps.DeleteFunc(rest, func(name string, _ safetensors.Tensor) bool { return strings.HasPrefix(name, lost) })
		found := judged("", rest)
		require.Equal(t, want == "", found == "", "without %s: %s", lost, found)
		require.Contains(t, found, strings.TrimSuffix(want, "bias"), lost)
	}
	maps.DeleteFunc(model, func(name string, _ safetensors.Tensor) bool { return strings.HasPrefix(name, "mid_block.") })
	require.Empty(t, judged(`,"mid_block_type":null`, model))
}

// TestKnownParts: models of known architectures have norms, heads, projectors and vision towers, and as many positions as
// images have patches.
func TestKnownParts(t *testing.T) {
	const norms = `
		model.layers.*.self_attn.q_norm.weight model.layers.*.self_attn.k_norm.weight 4
		`
	const moreNorms = `
		model.layers.*.pre_feedforward_layernorm.weight model.layers.*.post_feedforward_layernorm.weight 8
		`
	const clip = `
		vision_model.encoder.layers.*.self_attn.q_proj.weight vision_model.encoder.layers.*.self_attn.k_proj.weight vision_model.encoder.layers.*.self_attn.v_proj.weight vision_model.encoder.layers.*.self_attn.out_proj.weight 8x8
		vision_model.encoder.layers.*.self_attn.q_proj.bias vision_model.encoder.layers.*.self_attn.k_proj.bias vision_model.encoder.layers.*.self_attn.v_proj.bias vision_model.encoder.layers.*.self_attn.out_proj.bias 8
		vision_model.encoder.layers.*.layer_norm1.weight vision_model.encoder.layers.*.layer_norm1.bias vision_model.encoder.layers.*.layer_norm2.weight vision_model.encoder.layers.*.layer_norm2.bias 8
		vision_model.encoder.layers.*.mlp.fc1.weight 12x8
		vision_model.encoder.layers.*.mlp.fc1.bias 12
		vision_model.encoder.layers.*.mlp.fc2.weight 8x12
		vision_model.encoder.layers.*.mlp.fc2.bias 8
		vision_model.embeddings.position_embedding.weight `
	text := strings.ReplaceAll(llama, "P", "model")
	for _, c := range []struct{ config, whole, other, want string }{
		{`"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"head_dim":4,"tie_word_embeddings":true,` + sizes, text + norms, text, "k_norm.weight"},
		{`"model_type":"gemma2","architectures":["Gemma2ForCausalLM"],"head_dim":4,` + sizes, text + moreNorms, text, "post_feedforward_layernorm.weight"},
		{`"model_type":"llama","architectures":["LlamaForCausalLM"],"head_dim":4,"tie_word_embeddings":true,` + sizes, text, text + norms, `"model.layers.0.self_attn.k_norm.weight" is stored, which such a model does not have`},
		{`"model_type":"llama","architectures":["LlamaForCausalLM"],"head_dim":4,"tie_word_embeddings":true,"num_nextn_predict_layers":1,` + sizes, text + norms, "", ""},
		{`"model_type":"llama","architectures":["Other"],"auto_map":{},"head_dim":4,"tie_word_embeddings":true,` + sizes, text + norms, "", ""},
		{`"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],"head_dim":4,"tie_word_embeddings":true,` + sizes, text + norms, text + norms + moreNorms, "post_feedforward_layernorm.weight"},
		{`"model_type":"llama","architectures":["LlamaForCausalLM"],"tie_word_embeddings":false,"head_dim":4,` + sizes, text + "lm_head.weight 11x8", text + "output.weight 11x8", "that the head is not tied"},
		{`"model_type":"llava","architectures":["LlavaForConditionalGeneration"],`, "multi_modal_projector.x vision_tower.x 8", "vision_tower.x 8", `a name with "multi_modal_projector."`},
		{`"model_type":"llava","architectures":["LlavaForConditionalGeneration"],`, "multi_modal_projector.x vision_model.x 8", "multi_modal_projector.x 8", `a name with "vision_tower."`},
		{`"model_type":"clip_vision_model","hidden_size":8,"image_size":9,"patch_size":4,`, clip + "5x8", clip + "4x8", "position_embedding.weight"},
		{`"model_type":"siglip_vision_model","hidden_size":8,"num_channels":3,"image_size":9,"patch_size":4,`, clip + "4x8", clip + "5x8", "position_embedding.weight"},
		{`"model_type":"clip_vision_model","hidden_size":8,"image_size":9,"patch_size":0,`, clip + "5x8", "", ""},
	} {
		for shapes, want := range map[string]string{c.whole: "", c.other: c.want} {
			if shapes == "" {
				continue
			}
			model, _ := shaped(t, shapes)
			found := strings.Join(check(t, files(map[string]string{"config.json": "{" + c.config + `"rms_norm_eps":0}`, "model.safetensors": written(t, model)})), "; ")
			require.Equal(t, want == "", found == "", "%s: %s", c.config, found)
			require.Contains(t, found, want, c.config)
		}
	}
}
