package main

import (
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/stretchr/testify/require"
)

// TestResizeConfig: merge sets vocab_size in each config that describes the language model.
func TestResizeConfig(t *testing.T) {
	for name, c := range map[string]struct{ config, want, fault string }{
		"own":        {`{"vocab_size":4,"x":[NaN]}`, `{"vocab_size":5,"x":[NaN]}`, ""},
		"of text":    {`{"text_config":{"vocab_size":4},"vocab_size":4}`, `{"text_config":{"vocab_size":5},"vocab_size":5}`, ""},
		"of an LLM":  {`{"llm_config":{"vocab_size":4},"vision_config":{"vocab_size":9}}`, `{"llm_config":{"vocab_size":5},"vision_config":{"vocab_size":9}}`, ""},
		"of Omni":    {`{"thinker_config":{"text_config":{"vocab_size":4,"a":1},"b":2}}`, `{"thinker_config":{"text_config":{"a":1,"vocab_size":5},"b":2}}`, ""},
		"null":       {`{"vocab_size":null,"text_config":{"vocab_size":4}}`, `{"vocab_size":null,"text_config":{"vocab_size":5}}`, ""},
		"none":       {`{"text_config":{}}`, "", "no vocab_size"},
		"another":    {`{"vocab_size":4,"text_config":{"vocab_size":3}}`, "", "vocab_size is 3, but the embeddings have 4 rows, and 5 with the adapter"},
		"text":       {`{"vocab_size":"4"}`, "", "cannot unmarshal"},
		"no object":  {`[]`, "", "cannot unmarshal"},
		"too deep":   {`{"text_config":{"text_config":{"text_config":{"vocab_size":4}}}}`, "", "no vocab_size"},
		"not a text": {`{"text_config":7,"vocab_size":4}`, `{"text_config":7,"vocab_size":5}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resizing{4, 5}.resizeConfig([]byte(c.config))
			if c.fault != "" {
				require.ErrorContains(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			if name == "own" { // NaN is JSON of Python only
				require.Equal(t, "{\n  \"vocab_size\": 5,\n  \"x\": [\n    NaN\n  ]\n}\n", string(got))
				return
			}
			require.JSONEq(t, c.want, string(got))
		})
	}
}

// TestResize: all tensors with a row for each token have the same new number of rows.
func TestResize(t *testing.T) {
	const embedding, head = "model.embed_tokens.weight", "lm_head.weight"
	for _, c := range []struct {
		rows  map[string][2]int
		head  int
		fault string
	}{
		{nil, 4, ""},
		{map[string][2]int{embedding: {4, 5}}, 5, ""},
		{map[string][2]int{embedding: {4, 5}}, 4, `its embeddings have 5 rows, 1 more than the base, where "lm_head.weight" stays at 4 rows`},
		{map[string][2]int{embedding: {4, 5}, head: {4, 6}}, 6, "but 6 rows of other embeddings"},
		{map[string][2]int{"model.norm.weight": {4, 5}}, 4, "only embeddings can have another size"},
		{map[string][2]int{embedding: {4, 3}}, 3, ""},
		{map[string][2]int{"backbone.embeddings.weight": {4, 5}}, 5, ""},                            // Mamba
		{map[string][2]int{"cls.predictions.decoder.weight": {4, 5}, embedding: {4, 5}}, 5, ""},     // BERT
		{map[string][2]int{"generator_lm_head.bias": {4, 5}}, 4, `where "lm_head.weight" stays at`}, // ELECTRA
		{map[string][2]int{embedding: {4, 3}}, 4, "its embeddings have 3 rows, 1 fewer than the base"},
	} {
		w := new(copyJob)
		err := w.resize(&merge.Adapted{Rows: c.rows, Tensors: map[string]safetensors.Tensor{head: counting(t, c.head, 2)}})
		if c.fault == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.fault)
		}
	}
}
