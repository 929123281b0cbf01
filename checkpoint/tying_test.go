package checkpoint_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTyings: tensors that transformers ties, by the config or by default, have the same numbers if both are stored. The
// embeddings of T5 are tied whatever the config specifies.
func TestTyings(t *testing.T) {
	const tied, untied = `,"tie_word_embeddings":true`, `,"tie_word_embeddings":false`
	for _, c := range []struct {
		config, name, source string
		always               bool // whether the two are tied even with tie_word_embeddings false
	}{
		{`"model_type":"t5","architectures":["T5"]`, "encoder.embed_tokens.weight", "shared.weight", true},
		{`"model_type":"mt5","architectures":["T5"]`, "decoder.embed_tokens.weight", "shared.weight", true},
		{`"model_type":"t5","architectures":["T5"]`, "lm_head.weight", "shared.weight", false},
		{`"model_type":"bart","architectures":["Bart"]`, "model.encoder.embed_tokens.weight", "model.shared.weight", false},
		{`"model_type":"bart","architectures":["Bart"]`, "decoder.embed_tokens.weight", "shared.weight", false},
		{`"model_type":"m2m_100","architectures":["M2M"]`, "lm_head.weight", "model.shared.weight", false},
		{`"model_type":"marian","architectures":["Marian"]`, "lm_head.weight", "model.shared.weight", false},
		{`"model_type":"marian","architectures":["Marian"]`, "lm_head.weight", "model.decoder.embed_tokens.weight", false},
		{`"model_type":"whisper","architectures":["Whisper"]`, "proj_out.weight", "model.decoder.embed_tokens.weight", false},
		{`"model_type":"opt","architectures":["OPT"]`, "lm_head.weight", "model.decoder.embed_tokens.weight", false},
		{`"model_type":"bert","architectures":["Bert"]`, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight", false},
		{`"model_type":"bert","architectures":["Bert"]`, "cls.predictions.decoder.bias", "cls.predictions.bias", false},
		{`"model_type":"xlm-roberta","architectures":["Roberta"]`, "lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight", false},
		{`"model_type":"distilbert","architectures":["DistilBert"]`, "vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight", false},
	} {
		judged := func(more string, value float32) int {
			found := check(t, files(map[string]string{"config.json": "{" + c.config + more + "}", "model.safetensors": weights(t, map[string]float32{c.source: 1, c.name: value})}))
			return strings.Count(strings.Join(found, "; "), "are not alike")
		}
		require.Equal(t, 0, judged("", 1), c.config)
		require.Equal(t, 0, judged(tied, 1), c.config)
		require.Equal(t, 1, judged("", 2), c.config)
		require.Equal(t, 1, judged(tied, 2), c.config)
		require.Equal(t, map[bool]int{true: 1}[c.always], judged(untied, 2), c.config)
	}
	for config, want := range map[string]int{
		"": 0, tied: 1, untied: 0, `,"text_config":{"model_type":"llama"` + tied + `}`: 1, untied + `,"text_config":{"model_type":"llama"` + tied + `}`: 1,
		`,"architectures":["A"],"text_config":{"model_type":"gemma3_text"}`: 1, `,"architectures":["A"],"text_config":{"model_type":"gemma3_text"` + untied + `}`: 0,
		`,"architectures":["A"],"text_config":{"model_type":"mistral"}`: 0, `,"architectures":["A"],"text_config":{"model_type":"new"}`: 0,
		`,"text_config":{"model_type":"gemma3_text"}`: 0, untied + `,"architectures":["A"],"text_config":{"model_type":"gemma3_text"}`: 0,
		`,"text_config":{"model_type":"llama"` + untied + `}`: 0, `,"vision_config":{"model_type":"clip_vision_model"` + tied + `}`: 0,
	} {
		for head, embedding := range map[string]string{"lm_head.weight": "model.language_model.embed_tokens.weight", "language_model.lm_head.weight": "language_model.model.embed_tokens.weight"} {
			for value, want := range map[float32]int{1: 0, 2: want} {
				found := check(t, files(map[string]string{"config.json": `{"model_type":"llava"` + config + "}", "model.safetensors": weights(t, map[string]float32{embedding: 1, head: value})}))
				require.Len(t, found, want, config)
			}
		}
	}
	for config, want := range map[string]int{tied: 1, untied: 0, "": 1} { // most other types ask the config within only if the config has no answer
		config = `{"model_type":"qwen3_vl_moe"` + config + `,"text_config":{"model_type":"qwen3_vl_moe_text"` + tied + `}}`
		tensors := map[string]float32{"model.language_model.embed_tokens.weight": 1, "lm_head.weight": 2}
		require.Len(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": weights(t, tensors)})), want, config)
	}
}
