package merge

import (
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// matrix returns an F32 tensor with rows of two equal numbers.
func matrix(rows ...float32) safetensors.Tensor {
	return must(safetensors.NewTensorFunc(safetensors.F32, []int{len(rows), 2}, func(b []float32) error {
		for i, x := range rows {
			b[2*i], b[2*i+1] = x, x
		}
		return nil
	}))
}

// firstColumn returns the first number of each row of a matrix.
func firstColumn(t *testing.T, tensor safetensors.Tensor) (rows []float64) {
	all := values(t, tensor)
	for i := 0; i < len(all); i += 2 {
		rows = append(rows, all[i])
	}
	return rows
}

const (
	embedding, head = "model.embed_tokens.weight", "lm_head.weight"
	tokenAdapter    = "base_model.model.model.embed_tokens.token_adapter."
)

// TestLoRATokens: the rows of trainable tokens replace those of the base, in the order of the
// config.
func TestLoRATokens(t *testing.T) {
	for _, c := range []struct {
		config string
		rows   []float32
		want   []float64
		fault  string
	}{
		{`[3,0]`, []float32{7, 8}, []float64{8, 2, 3, 7}, ""},
		{`[1,2]`, []float32{7, 8}, []float64{1, 7, 8, 4}, ""},
		{`[]`, nil, []float64{1, 2, 3, 4}, ""},
		{`{"embed_tokens":[2],"other":[1]}`, []float32{7}, []float64{1, 2, 7, 4}, ""},
		{`{"model.embed_tokens":[2],"embed_tokens":[1]}`, []float32{7}, nil, `has 2 lists for "model.embed_tokens"`},
		{`{"tokens":[2]}`, []float32{7}, nil, `has 0 lists for "model.embed_tokens"`},
		{`null`, []float32{7}, nil, "has 0 tokens: their shapes do not fit"},
		{`[1]`, []float32{7, 8}, nil, "has 1 tokens: their shapes do not fit"},
		{`[1,1]`, []float32{7, 8}, nil, "has 1 twice"},
		{`[4]`, []float32{7}, nil, "has 4, the base has 4 rows"},
		{`[-1]`, []float32{7}, nil, "has -1, the base has 4 rows"},
		{`7`, []float32{7}, nil, "cannot unmarshal"},
	} {
		got, err := LoRA(checkpoint{embedding: matrix(1, 2, 3, 4)}, checkpoint{tokenAdapter + "trainable_tokens_delta": matrix(c.rows...)},
			[]byte(`{"trainable_token_indices":`+c.config+`}`))
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault, c.config)
			continue
		}
		require.NoError(t, err, c.config)
		require.Equal(t, c.want, firstColumn(t, got.Tensors[embedding]), c.config)
		require.Equal(t, 1, got.Changed)
	}
	list := must(safetensors.NewTensor(safetensors.F32, []int{2}, []float32{7, 8}))
	_, err := LoRA(checkpoint{embedding: list}, checkpoint{tokenAdapter + "trainable_tokens_delta": matrix(7)}, []byte(`{"trainable_token_indices":[0]}`))
	require.ErrorContains(t, err, "their shapes do not fit")
	_, err = LoRA(checkpoint{embedding: matrix(1, 2)}, checkpoint{tokenAdapter + "trainable_tokens_delta": list}, []byte(`{"trainable_token_indices":[0,1]}`))
	require.ErrorContains(t, err, "their shapes do not fit")
	got, err := LoRA(checkpoint{embedding: must(matrix(1, 2).Convert(safetensors.BF16))}, checkpoint{
		tokenAdapter + "base_layer.weight":      matrix(1, 2, 0),
		tokenAdapter + "trainable_tokens_delta": matrix(5),
	}, []byte(`{"trainable_token_indices":[2]}`))
	require.NoError(t, err)
	require.Equal(t, map[string][2]int{embedding: {2, 3}}, got.Rows)
	require.Equal(t, "BF16 [3,2]", got.Tensors[embedding].String())
	require.Equal(t, []float64{1, 2, 5}, firstColumn(t, got.Tensors[embedding]))
}

// TestLoRAUntied: only whole embeddings that are modules to save are untied from a head, which neither the base nor the
// adapter stores, and only if they change.
func TestLoRAUntied(t *testing.T) {
	const at, saved = "base_model.model.", `{"modules_to_save":["tokens"]}`
	trained := matrix(5, 6)
	for _, c := range []struct {
		base, adapter checkpoint
		config, want  string
	}{
		{checkpoint{embedding: matrix(1, 2)}, checkpoint{at + embedding: trained}, saved, embedding},
		{checkpoint{embedding: matrix(1, 2)}, checkpoint{at + "model.embed_tokens.modules_to_save.weight": trained}, saved, embedding},
		{checkpoint{embedding: matrix(1, 2)}, checkpoint{at + embedding: trained, at + head: trained}, saved, ""},
		{checkpoint{embedding: matrix(1, 2)}, checkpoint{at + embedding: trained}, `{"modules_to_save":["tokens"],"ensure_weight_tying":true}`, ""},
		{checkpoint{embedding: matrix(1, 2)}, checkpoint{at + embedding: trained}, `{"modules_to_save":["embed"]}`, ""},
		{checkpoint{embedding: matrix(1, 2)}, checkpoint{at + embedding: trained}, `{"modules_to_save":null}`, ""},
		{checkpoint{embedding: trained}, checkpoint{at + embedding: trained}, saved, ""},
		{checkpoint{embedding: matrix(1, 2), head: matrix(3, 4)}, checkpoint{at + embedding: trained}, saved, ""},
		{checkpoint{embedding: matrix(1, 2), "cls.predictions.decoder.weight": matrix(3, 4)}, checkpoint{at + embedding: trained}, saved, ""},
		{checkpoint{embedding: matrix(1, 2), "layers.0.output.weight": matrix(3)}, checkpoint{at + embedding: trained}, saved, embedding},
		{checkpoint{embedding: matrix(1, 2)}, checkpoint{tokenAdapter + "trainable_tokens_delta": matrix(7)}, `{"trainable_token_indices":[0]}`, ""},
	} {
		got, err := LoRA(c.base, c.adapter, []byte(c.config))
		require.NoError(t, err)
		require.Equal(t, c.want, got.Untied, "%v %s", c.adapter, c.config)
	}
}

// TestLoRACopies: an adapter of peft may repeat its whole embeddings, and the head of a model whose
// head is tied to them.
func TestLoRACopies(t *testing.T) {
	const at = "base_model.model."
	old, trained := matrix(0, 0, 0), matrix(5, 6, 7)
	tied, untied := checkpoint{embedding: matrix(1, 2)}, checkpoint{embedding: matrix(1, 2), head: matrix(3, 4)}
	saved := checkpoint{
		at + embedding: trained, at + "model.embed_tokens.modules_to_save.weight": trained, at + "model.embed_tokens.original_module.weight": old,
		at + head: trained, at + "lm_head.modules_to_save.weight": trained, at + "lm_head.original_module.weight": old,
	}
	for _, c := range []struct {
		base, adapter checkpoint
		fault         string
	}{
		{untied, saved, ""},
		{tied, saved, ""},
		{untied, checkpoint{at + "model.embed_tokens.modules_to_save.weight": trained, at + head: trained}, ""},
		{tied, checkpoint{at + embedding: trained, at + head: trained}, ""},
		{untied, checkpoint{at + embedding: old, at + "model.embed_tokens.modules_to_save.weight": trained},
			`adapter tensors "base_model.model.model.embed_tokens.weight" and "base_model.model.model.embed_tokens.modules_to_save.weight" are both for "model.embed_tokens.weight" and differ`},
		{tied, checkpoint{at + embedding: trained, at + head: old}, `the base has no tensor "lm_head.weight": its head is tied to its embeddings, and the adapter has another head`},
		{tied, checkpoint{at + head: old}, "its head is tied to its embeddings"},
		{untied, checkpoint{at + "lm_head.original_module.weight": old}, `the base has no tensor "lm_head.original_module.weight"`},
	} {
		got, err := LoRA(c.base, c.adapter, []byte(`{}`))
		if c.fault != "" {
			require.ErrorContains(t, err, c.fault)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, len(c.base), got.Changed)
		require.Len(t, got.Tensors, len(c.base))
		for name := range c.base {
			require.Equal(t, []float64{5, 6, 7}, firstColumn(t, got.Tensors[name]))
		}
	}
}

// TestLoRATiedTokens: peft stores the trainable tokens of embeddings, and their weights before the training, also under the
// name of a head that is tied to them.
func TestLoRATiedTokens(t *testing.T) {
	const ofHead = "base_model.model.lm_head.token_adapter."
	adapter := checkpoint{
		tokenAdapter + "base_layer.weight": matrix(1, 2, 0), tokenAdapter + "trainable_tokens_delta": matrix(5),
		ofHead + "base_layer.weight": matrix(1, 2, 0), ofHead + "trainable_tokens_delta": matrix(5),
	}
	config := []byte(`{"trainable_token_indices":[2]}`)
	got, err := Tying{head: embedding}.LoRA(checkpoint{embedding: matrix(1, 2)}, adapter, config)
	require.NoError(t, err)
	require.Equal(t, []float64{1, 2, 5}, firstColumn(t, got.Tensors[embedding]))

	_, err = Tying{head: embedding}.LoRA(checkpoint{embedding: matrix(1, 2)}, adapter, []byte(`{"trainable_token_indices":{"embed_tokens":[2],"lm_head":[1]}}`))
	require.Error(t, err, "the head has the same rows at another place")

	adapter[ofHead+"trainable_tokens_delta"] = matrix(6)
	_, err = Tying{head: embedding}.LoRA(checkpoint{embedding: matrix(1, 2)}, adapter, config)
	require.Error(t, err, "the head has other tokens")
}

// TestLoRABiasOfDecoder: BERT stores the bias of its tied head under one name, and peft under two.
func TestLoRABiasOfDecoder(t *testing.T) {
	const bias, at = "cls.predictions.bias", "base_model.model."
	config := []byte(`{"modules_to_save":["cls"]}`)
	adapter := checkpoint{at + bias: matrix(5, 6), at + "cls.predictions.decoder.bias": matrix(5, 6)}
	got, err := LoRA(checkpoint{bias: matrix(1, 2)}, adapter, config)
	require.NoError(t, err)
	require.Equal(t, []float64{5, 6}, firstColumn(t, got.Tensors[bias]))
	require.Len(t, got.Tensors, 1)

	adapter[at+"cls.predictions.decoder.bias"] = matrix(5, 7)
	_, err = LoRA(checkpoint{bias: matrix(1, 2)}, adapter, config)
	require.ErrorContains(t, err, `the base has no tensor "cls.predictions.decoder.bias"`)
}

// TestLoRASavedModule: the error for a module to save that the base lacks names the module.
func TestLoRASavedModule(t *testing.T) {
	for _, c := range []struct{ tensor, saved, want string }{
		{"score.weight", `["classifier","score"]`, "score"},
		{"classifier.out_proj.bias", `["classifier"]`, "classifier"},
		{"classifier.out_proj.bias", `["out_proj"]`, "classifier.out_proj"},
		{"score.weight", `["classifier"]`, ""},
		{"score.weight", `null`, ""},
	} {
		var missing *MissingError
		_, err := LoRA(checkpoint{embedding: matrix(1, 2)}, checkpoint{"base_model.model." + c.tensor: matrix(3)}, []byte(`{"modules_to_save":`+c.saved+`}`))
		require.ErrorAs(t, err, &missing)
		require.Equal(t, c.want, missing.Saved, c)
	}
}
