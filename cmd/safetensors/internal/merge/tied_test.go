package merge

import (
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestTiedHeads: heads and embeddings with the same elements are tied, and so is a head that only the adapter names.
func TestTiedHeads(t *testing.T) {
	const at = "base_model.model."
	one, other := matrix(1, 2), matrix(1, 3)
	ofHead, ofRows := checkpoint{at + "lm_head.lora_A.weight": one}, checkpoint{tokenAdapter + "trainable_tokens_delta": one}
	for _, c := range []struct {
		base    checkpoint
		adapter checkpoint
		ties    bool
		want    Tying
	}{
		{checkpoint{embedding: one, head: matrix(1, 2)}, ofHead, false, Tying{head: embedding}},
		{checkpoint{embedding: one, head: matrix(1, 2)}, ofRows, false, Tying{head: embedding}},
		{checkpoint{embedding: one, head: matrix(1, 2)}, checkpoint{at + "lm_head.modules_to_save.weight": one}, false, Tying{head: embedding}},
		{checkpoint{embedding: one, head: matrix(1, 2)}, checkpoint{at + "q_proj.lora_A.weight": one}, true, Tying{}},
		{checkpoint{embedding: one, head: other}, ofHead, true, Tying{}},
		{checkpoint{embedding: one}, ofHead, true, Tying{head: embedding}},
		{checkpoint{embedding: one}, ofHead, false, Tying{}},
		{checkpoint{embedding: one}, ofRows, true, Tying{}},
		{checkpoint{embedding: one, "wte.weight": one}, ofHead, true, Tying{}},
		{checkpoint{embedding: one, "decoder.weight": one}, ofHead, true, Tying{}},
		{checkpoint{embedding: one, "model.decoder.output_projection.weight": one}, ofHead, true, Tying{}},
		{checkpoint{"backbone.embeddings.weight": one}, ofHead, true, Tying{head: "backbone.embeddings.weight"}},
		{checkpoint{"b.word_embeddings.weight": one, "cls.predictions.decoder.weight": matrix(1, 2)}, checkpoint{at + "cls.predictions.decoder.lora_A.weight": one}, false,
			Tying{"cls.predictions.decoder.weight": "b.word_embeddings.weight"}},
		{checkpoint{"encoder.embed_tokens.weight": one, "shared.weight": one, "other.wte.weight": other, head: one}, ofHead, false,
			Tying{head: "encoder.embed_tokens.weight", "shared.weight": "encoder.embed_tokens.weight"}},
	} {
		got, err := TiedHeads(c.base, []checkpoint{c.adapter}, c.ties)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%v", c.base)
	}
}

// TestTying: the main name of a tensor is that of embeddings, and a tying that is added may give it another one.
func TestTying(t *testing.T) {
	tied := make(Tying)
	tied.Group(head, []string{"z.weight", embedding})
	tied.Group("b", []string{"a"})
	require.Equal(t, Tying{head: embedding, "z.weight": embedding, "a": "b"}, tied)
	tied.Add(Tying{embedding: "shared.weight"})
	require.Equal(t, Tying{head: "shared.weight", "z.weight": "shared.weight", embedding: "shared.weight", "a": "b"}, tied)
	require.Equal(t, "c", tied.Name("c"))
	require.Equal(t, checkpoint{"shared.weight": matrixOne, "c": matrixOne}, tied.Once(checkpoint{head: matrixOne, "c": matrixOne}))
}

var matrixOne = must(safetensors.NewTensor(safetensors.F32, []int{1, 1}, []float32{1}))

// TestLoRATied: an update of a head changes the embeddings to which it is tied. A whole head is refused unless the adapter
// replaces both.
func TestLoRATied(t *testing.T) {
	const at = "base_model.model."
	tied, base := Tying{head: embedding}, checkpoint{embedding: matrix(1, 2)}
	a := must(safetensors.NewTensor(safetensors.F32, []int{1, 2}, []float32{1, 1}))
	b := must(safetensors.NewTensor(safetensors.F32, []int{2, 1}, []float32{0, 10}))
	update := checkpoint{at + "lm_head.lora_A.weight": a, at + "lm_head.lora_B.weight": b}
	both := checkpoint{
		at + "lm_head.lora_A.weight": a, at + "lm_head.lora_B.weight": b,
		at + "model.embed_tokens.lora_embedding_A": must(b.Transpose(1, 0)), at + "model.embed_tokens.lora_embedding_B": must(a.Transpose(1, 0)),
	}
	for _, c := range []struct {
		adapter checkpoint
		config  string
		want    []float64
		fault   string
	}{
		{update, `{"lora_alpha":1}`, []float64{1, 12}, ""},
		{checkpoint{at + "lm_head.base_layer.weight": matrix(5, 6), at + "lm_head.lora_A.weight": a, at + "lm_head.lora_B.weight": b}, `{"lora_alpha":1}`, []float64{5, 16}, ""},
		{checkpoint{at + "lm_head.token_adapter.trainable_tokens_delta": matrix(7)}, `{"trainable_token_indices":{"lm_head":[1]}}`, []float64{1, 7}, ""},
		{checkpoint{at + head: matrix(8, 9)}, `{"ensure_weight_tying":true}`, []float64{8, 9}, ""},
		{checkpoint{at + head: matrix(8, 9), at + embedding: matrix(8, 9)}, `{}`, []float64{8, 9}, ""},
		{checkpoint{at + head: matrix(8, 9)}, `{}`, nil, `it has a tensor of its own for "lm_head.weight", which is tied to "model.embed_tokens.weight"`},
		{checkpoint{at + head: matrix(8, 9), at + embedding: matrix(7, 9)}, `{}`, nil, `it has a tensor of its own for "lm_head.weight"`},
		{both, `{"lora_alpha":1}`, nil, `are both for "model.embed_tokens.weight"; "lm_head.weight" is another name of it`},
	} {
		got, err := tied.LoRA(base, c.adapter, []byte(c.config))
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.want, firstColumn(t, got.Tensors[embedding]))
		require.Len(t, got.Tensors, 1)
	}
	got, err := Tying{head: "embed_tokens.weight"}.LoRA(checkpoint{"embed_tokens.weight": matrix(1, 2)}, checkpoint{
		at + "embed_tokens.weight": matrix(8, 9), at + "lm_head.lora_A.weight": a, at + "lm_head.lora_B.weight": b,
	}, []byte(`{"modules_to_save":["embed_tokens"]}`))
	require.NoError(t, err)
	require.Equal(t, "embed_tokens.weight", got.Untied, "the update of the head belongs to the old embeddings")
}
