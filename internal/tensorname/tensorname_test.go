package tensorname

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNames: these are names of tensors in models of transformers, and in the formats that Llama, Mistral and DeepSeek publish.
func TestNames(t *testing.T) {
	for _, c := range []struct {
		is    func(name string) bool
		names string
	}{
		{IsEmbedding, `model.embed_tokens.weight embed_tokens.weight model.language_model.embed_tokens.weight language_model.model.embed_tokens.weight
			model.decoder.embed_tokens.weight bert.embeddings.word_embeddings.weight transformer.word_embeddings.weight transformer.wte.weight wte.weight
			shared.weight model.shared.weight gpt_neox.embed_in.weight backbone.embeddings.weight rwkv.embeddings.weight transformer.embeddings.weight
			model.embeddings.tok_embeddings.weight tok_embeddings.weight text_model.embeddings.token_embedding.weight transformer.tokens_embed.weight
			embed.weight conditioning_encoder.text_token_embedding.weight`},
		{IsHead, `lm_head.weight model.lm_head.weight language_model.lm_head.weight lm_heads.0.weight decoder.lm_heads.3.weight embed_out.weight
			generator_lm_head.weight vocab_projector.weight cls.predictions.decoder.weight predictions.decoder.weight
			entity_predictions.decoder.weight lm_head.decoder.weight mlm_head.decoder.weight head.decoder.weight`},
		{func(name string) bool { return !IsHead(name) && IsHeadOf(name, []int{70, 16}, []int{70, 16}) }, `proj_out.weight output.weight head.weight
			decoder.weight model.decoder.output_projection.weight output_projection.weight cls.weight`},
		{func(name string) bool { return !IsEmbedding(name) && !IsHeadOf(name, []int{70, 16}, []int{70, 16}) }, `wte lm_head lm_head.bias cls.predictions.bias
			weight .weight lm_head.dense.weight lm_head.layer_norm.weight cls.predictions.transform.dense.weight generator_predictions.dense.weight
			xwte.weight wte.0.weight wte.weight_scale lm_head.weight.absmax 0.weight heads.0.weight a.lm_heads.weight
			embeddings.position_embeddings.weight embeddings.token_type_embeddings.weight transformer.wpe.weight embeddings.patch_embeddings.projection.weight
			vqmodel.quantize.embedding.weight model.norm.weight model.layers.0.self_attn.o_proj.weight word_embeddings_layernorm.weight
			mask_decoder.mask_tokens.weight attention.output.dense.weight`},
		{func(name string) bool { return !IsHeadOf(name, []int{16, 16}, []int{70, 16}) }, `encoder.layer.0.attention.output.weight
			transformer_blocks.0.proj_out.weight text_model.head.weight autoencoder.decoder.weight self_attn.output_projection.weight`},
		{IsNorm, `norm norm1 input_layernorm LayerNorm layer_norm q_norm final_norm norm_f ln ln_f ln_1 ln1 attn_ln pre_LN emb_ln pre_layrnorm RMSNorm group_norms`},
		{func(part string) bool { return !IsNorm(part) }, `weight mlp q_proj fln lnx lanes`},
	} {
		for _, name := range strings.Fields(c.names) {
			require.True(t, c.is(name), name)
		}
	}
}
