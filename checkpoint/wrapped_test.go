package checkpoint_test

import (
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestMisplaced: layers of a known architecture have the prefix that it has, or none. Otherwise transformers sets all of
// them at random.
func TestMisplaced(t *testing.T) {
	const config = `{"model_type":"llama","architectures":["LlamaForCausalLM"],"head_dim":4,` + sizes
	for name, c := range map[string]struct {
		prefix, more string
		found        bool
	}{
		"as saved":             {"model", "", false},
		"base model":           {"", "", false},
		"twice":                {"model.model", "", false},
		"for answers":          {"transformer", "", false},
		"of a trainer":         {"net.model", "", true},
		"code in repository":   {"net.model", `,"auto_map":{}`, false},
		"part of a model":      {"net.model", `,"vision_config":{"model_type":"clip_vision_model"}`, false},
		"another architecture": {"net.model", "new", false},
	} {
		model, _ := shaped(t, strings.ReplaceAll(strings.ReplaceAll(llama, "P.", strings.TrimPrefix(c.prefix+".", ".")), "lm_head.weight", "")+"lm_head.weight 11x8")
		config := config + `"rms_norm_eps":0` + c.more + "}"
		if c.more == "new" {
			config = `{"model_type":"new","architectures":["New"]}`
		}
		found := strings.Join(check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), "; ")
		require.Equal(t, c.found, found != "", "%s: %s", name, found)
		if c.found {
			require.Contains(t, found, `the tensor "net.model.layers.0.input_layernorm.weight" of "model.safetensors", and all others in layers, has a prefix`)
		}
	}
	trl := map[string]safetensors.Tensor{"pretrained_model.a": zeros(t, 2), "v_head.summary.weight": zeros(t, 2)}
	require.Len(t, check(t, files(map[string]string{"config.json": `{"model_type":"new","architectures":["New"]}`, "model.safetensors": written(t, trl)})), 1)
	trl["b"] = zeros(t, 2)
	require.Empty(t, check(t, files(map[string]string{"config.json": `{"model_type":"new","architectures":["New"]}`, "model.safetensors": written(t, trl)})))
}

// TestNested: tensors in a dict within the dict of a file of torch.save are a finding, if libraries open the file.
func TestNested(t *testing.T) {
	values := map[string]float32{"a": 1}
	plain, nested := torchFile(t, values), torchFileIn(t, "state_dict", values)
	const ours, unet, adapter = `{"model_type":"new","architectures":["New"]}`, `{"_class_name":"New"}`, `{"peft_type":"NEW"}`
	for _, c := range []struct{ config, text, file string }{
		{"config.json", ours, "pytorch_model.bin"}, {"config.json", unet, "diffusion_pytorch_model.bin"}, {"adapter_config.json", adapter, "adapter_model.bin"},
	} {
		require.Empty(t, check(t, files(map[string]string{c.config: c.text, c.file: plain})), c.file)
		model := map[string]string{c.config: c.text, c.file: nested}
		require.Equal(t, []string{`config: "` + c.file + `" has its tensors in the dict "state_dict": libraries look for them beside it, and find none of the model`}, check(t, files(model)))
		requireFaults(t, files(model))
		delete(model, c.config)
		require.Empty(t, check(t, files(model)), c.file)
	}
	require.Empty(t, check(t, files(map[string]string{"config.json": ours, "any.pt": nested})))
	require.Empty(t, check(t, files(map[string]string{"config.json": `{"model_type":"new","architectures":["New"],"auto_map":{}}`, "pytorch_model.bin": nested})), "code in the repository")
	require.Empty(t, check(t, files(map[string]string{"config.json": ours, "model.safetensors": weights(t, values), "pytorch_model.bin": nested})), "libraries open the other one")
}
