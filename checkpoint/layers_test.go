package checkpoint_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// savedModel returns the config and the tensors of a model that transformers saved, from the unpacked directory saved.
func savedModel(t *testing.T, saved, name string) (config map[string]any, tensors map[string]safetensors.Tensor) {
	t.Helper()
	dir := filepath.Join(saved, name)
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &config))
	f, err := safetensors.Load(filepath.Join(dir, "model.safetensors"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return config, maps.Collect(f.Tensors())
}

// judgeModel returns the findings about a model with this config and these tensors.
func judgeModel(t *testing.T, config map[string]any, tensors map[string]safetensors.Tensor) []string {
	t.Helper()
	text, err := json.Marshal(config)
	require.NoError(t, err)
	return check(t, files(map[string]string{"config.json": string(text), "model.safetensors": written(t, tensors)}))
}

// TestLayerCounts: each number of layers in a config, even of one part of a model, agrees with the tensors. Without a
// number for the decoder, a T5 has as many layers there as in the encoder.
func TestLayerCounts(t *testing.T) {
	saved := unpack(t, "saved", "saved.tar.bz2")
	for path, model := range map[string]string{
		"num_layers": "t5-s2s", "num_decoder_layers": "t5-s2s", "encoder_layers": "bart-s2s", "decoder_layers": "bart-s2s", "n_layer": "bloom-causal",
		"vision_config.num_hidden_layers": "clip-base", "text_config.num_hidden_layers": "llava-vlm", "num_hidden_layers": "opt-causal",
		"vision_config.depth": "qwen2_vl-vlm",
	} {
		config, tensors := savedModel(t, saved, model)
		section, key := config, path
		if outer, inner, found := strings.Cut(path, "."); found {
			section, key = config[outer].(map[string]any), inner
		}
		for n, want := range []string{1: "there are tensors of layer 1", 2: "", 3: "are not stored"} {
			if n == 0 {
				continue
			}
			section[key] = n
			found := judgeModel(t, config, tensors)
			require.Len(t, found, min(len(want), 1), "%s %d", path, n)
			require.Contains(t, strings.Join(found, ""), want, path)
			if n == 1 {
				require.Contains(t, found[0], path+" 1,")
			}
		}
	}
	config, tensors := savedModel(t, saved, "t5-s2s")
	delete(config, "num_decoder_layers")
	require.Empty(t, judgeModel(t, config, tensors))
	config["num_layers"] = 1
	require.Len(t, judgeModel(t, config, tensors), 1)
}

// TestLostStacks: a class with an encoder and a decoder has both.
func TestLostStacks(t *testing.T) {
	saved := unpack(t, "saved", "saved.tar.bz2")
	for _, model := range []string{"t5-s2s", "bart-s2s", "whisper-asr"} {
		for _, lost := range []string{"encoder.", "decoder."} {
			config, tensors := savedModel(t, saved, model)
			maps.DeleteFunc(tensors, func(name string, _ safetensors.Tensor) bool {
				return strings.Contains("."+name, "."+lost) && strings.ContainsAny(name, "0123456789")
			})
			found := judgeModel(t, config, tensors)
			require.Len(t, found, 1, "%s without %s", model, lost)
			require.Contains(t, found[0], `missing: the tensor "`+lost)
		}
	}
}

// TestTiedEmbeddings: an embedding that is tied to the head may be stored as the head alone.
func TestTiedEmbeddings(t *testing.T) {
	model := make(map[string]safetensors.Tensor)
	for n := range 3 {
		for name := range strings.FieldsSeq("attn.Wqkv attn.Wo mlp.Wi mlp.Wo mlp_norm") {
			model[fmt.Sprintf("model.layers.%d.%s.weight", n, name)] = zeros(t, 2, 2)
		}
	}
	for name := range strings.FieldsSeq("model.embeddings.norm model.final_norm head.dense head.norm decoder") {
		model[name+".weight"] = zeros(t, 2, 2)
	}
	config := `{"model_type":"modernbert","num_hidden_layers":3,"tie_word_embeddings":%v}`
	require.Empty(t, check(t, files(map[string]string{"config.json": fmt.Sprintf(config, true), "model.safetensors": written(t, model)})))
	found := check(t, files(map[string]string{"config.json": fmt.Sprintf(config, false), "model.safetensors": written(t, model)}))
	require.Len(t, found, 1)
	require.Contains(t, found[0], `"model.embeddings.tok_embeddings.weight"`)
}

// TestLayersOfUnknownTypes: the only stack of an architecture that Check does not know has no more layers than the config
// specifies, unless the last one differs from the first, or another number of the config fits.
func TestLayersOfUnknownTypes(t *testing.T) {
	whole := func(int) string { return "a.weight b.weight" }
	further := func(n int) string { return []string{"a.weight b.weight", "a.weight b.weight eh_proj.weight"}[n/4] }
	for _, c := range []struct {
		names  func(n int) string
		config string
		found  string
	}{
		{whole, `"num_hidden_layers":5`, ""},
		{whole, `"num_hidden_layers":4`, "there are 4 layers, but there are tensors of layer 4"},
		{whole, `"n_layer":1`, "there are 1 layers, but there are tensors of layer 4"},
		{whole, `"num_hidden_layers":4,"auto_map":{}`, ""},
		{whole, `"num_hidden_layers":4,"num_blocks":5`, ""},
		{whole, `"num_hidden_layers":4,"num_heads":5`, "there are 4 layers"},
		{whole, `"num_hidden_layers":4,"text_config":{"model_type":"new_text"}`, ""},
		{further, `"num_hidden_layers":4`, ""},
		{whole, `"num_hidden_layers":5,"layer_types":["a","a","a","a","a"]`, ""},
		{whole, `"num_hidden_layers":5,"layer_types":["a","a"]`, "num_hidden_layers 5, but 2 layer_types"},
	} {
		model := layersOf(t, 5, c.names)
		judged := func() string {
			config := `{"model_type":"new","architectures":["New"],` + c.config + `}`
			return strings.Join(check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), "; ")
		}
		found := judged()
		require.Equal(t, c.found == "", found == "", "%s: %s", c.config, found)
		require.Contains(t, found, c.found)
		model["other.layers.0.a.weight"] = zeros(t, 2, 2) // another stack, to which the number may belong
		require.NotContains(t, judged(), "tensors of layer")
	}
}
