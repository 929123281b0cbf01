package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A dim computes the length of a dimension from the numbers of a config. ok is false if the config lacks one of
// these numbers.
type dim func(fields map[string]any) (n int, ok bool)

// key returns a dim that is the first number that the config has for one of these keys.
func key(names ...string) dim {
	return func(fields map[string]any) (int, bool) {
		for _, name := range names {
			if n, ok := number(fields[name]); ok {
				return n, true
			}
		}
		return 0, false
	}
}

// both returns a dim that is f of the lengths of two dims.
func both(a, b dim, f func(n, m int) int) dim {
	return func(fields map[string]any) (int, bool) {
		n, ok := a(fields)
		m, also := b(fields)
		return f(n, m), ok && also
	}
}

func product(a, b dim) dim         { return both(a, b, func(n, m int) int { return n * m }) }
func plus(a, b dim) dim            { return both(a, b, func(n, m int) int { return n + m }) }
func times(factor int, of dim) dim { return both(of, of, func(n, _ int) int { return factor * n }) }

// one is a dim: 1.
func one(map[string]any) (int, bool) { return 1, true }

// headsOf returns a dim that is a number of heads times the size of a head. Without head_dim, the size of a head
// is hidden_size divided by num_attention_heads. If the architecture has another default, ok is false without
// head_dim.
func headsOf(count dim) dim {
	return func(fields map[string]any) (int, bool) {
		n, ok := count(fields)
		size, given := key("head_dim")(fields)
		if modelType, _ := fields["model_type"].(string); !given && !sizesHeads(modelType) {
			all, known := key("num_attention_heads")(fields)
			hidden, have := key("hidden_size")(fields)
			if have && known && all > 0 {
				size, given = hidden/all, hidden%all == 0
			}
		}
		return n * size, ok && given
	}
}

// sizesHeads reports whether an architecture has a default of its own for head_dim.
func sizesHeads(modelType string) bool {
	return strings.HasPrefix(modelType, "gemma") || strings.HasPrefix(modelType, "qwen3") || strings.Contains(classDefaults[modelType], `"head_dim"`)
}

// keyHeads is a dim: the number of heads for keys and values. If the config lacks it, some architectures use the
// number of heads for queries; for the others, ok is false.
func keyHeads(fields map[string]any) (int, bool) {
	n, ok := key("num_key_value_heads")(fields)
	modelType, _ := fields["model_type"].(string)
	value, found := fields["num_key_value_heads"]
	if null := found && value == nil; !ok && (slices.Contains([]string{"llama", "granite", "olmo", "olmo2", "cohere", "phi3"}, modelType) || null && slices.Contains([]string{"qwen2", "qwen3", "qwen2_vl_text", "qwen2_5_vl_text"}, modelType)) {
		return key("num_attention_heads")(fields)
	}
	return n, ok
}

// patches returns a dim that is the number of patches of an image, and more.
func patches(more int) dim {
	return func(fields map[string]any) (int, bool) {
		image, ok := key("image_size")(fields)
		size, also := key("patch_size")(fields)
		if !ok || !also || size <= 0 {
			return 0, false
		}
		return image/size*(image/size) + more, true
	}
}

// or returns a dim that is a, or b if the config lacks a number that a needs.
func or(a, b dim) dim {
	return func(fields map[string]any) (int, bool) {
		if n, ok := a(fields); ok {
			return n, true
		}
		return b(fields)
	}
}

var (
	hidden  = key("hidden_size")
	inner   = key("intermediate_size")
	queries = headsOf(key("num_attention_heads"))
	keys    = headsOf(keyHeads)
	vocab   = key(modelconfig.Vocabulary)
	places  = key("max_position_embeddings")
	model   = key("d_model")
	experts = key(expertKeys...)
	small   = key("moe_intermediate_size") // intermediate size of an expert
	embd    = key("n_embd")
	innerOf = or(key("n_inner"), times(4, embd)) // intermediate size of GPT-2
)

// llamas are the architectures with the shapes of Llama.
var llamas = []string{"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "smollm3", "olmo", "olmo2", "cohere"}

// A shaped lists the shapes of tensors of some architectures, in a layer and next to the stack of layers. A nil
// dim stands for any length.
type shaped struct {
	types        []string
	layer, model map[string][]dim
}

// shapes are the known shapes. The table is built on first use: that takes a tenth of a millisecond, which
// programs that only open files should not spend.
var shapes = sync.OnceValue(func() []shaped {
	return []shaped{
		{append([]string{"mixtral", "qwen2_moe", "qwen3_moe", "cohere2", "olmo3", "ministral", "helium", "seed_oss", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text", "stablelm", "starcoder2"}, llamas...), map[string][]dim{
			"self_attn.q_proj.weight": {queries, hidden}, "self_attn.k_proj.weight": {keys, hidden}, "self_attn.v_proj.weight": {keys, hidden}, "self_attn.o_proj.weight": {hidden, queries},
			"self_attn.q_proj.bias": {queries}, "self_attn.k_proj.bias": {keys}, "self_attn.v_proj.bias": {keys},
			"input_layernorm.weight": {hidden}, "post_attention_layernorm.weight": {hidden},
		}, map[string][]dim{"norm.weight": {hidden}, "embed_tokens.weight": {vocab, hidden}}},
		{[]string{"stablelm", "starcoder2", "ministral", "helium", "seed_oss", "phi", "phi3", "gpt_oss", "glm4_moe", "glm4_moe_lite", "deepseek_v2", "deepseek_v3", "llama4_text", "olmoe", "olmo3", "cohere2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"},
			map[string][]dim{"input_layernorm.weight": {hidden}, "self_attn.o_proj.weight": {hidden, nil}, "self_attn.dense.weight": {hidden, nil}}, map[string][]dim{"embed_tokens.weight": {vocab, hidden}}},
		{[]string{"stablelm", "ministral", "helium", "seed_oss", "deepseek_v2", "deepseek_v3", "glm4_moe_lite", "glm4_moe", "olmo3", "cohere2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"},
			map[string][]dim{"mlp.gate_proj.weight": {inner, hidden}, "mlp.up_proj.weight": {inner, hidden}, "mlp.down_proj.weight": {hidden, inner}}, nil},
		{[]string{"phi"}, map[string][]dim{"mlp.fc1.weight": {inner, hidden}, "mlp.fc2.weight": {hidden, inner}}, nil},
		{[]string{"starcoder2"}, map[string][]dim{"mlp.c_fc.weight": {inner, hidden}, "mlp.c_proj.weight": {hidden, inner}}, nil},
		{[]string{"phi3"}, map[string][]dim{"self_attn.qkv_proj.weight": {plus(queries, times(2, keys)), hidden}, "mlp.gate_up_proj.weight": {times(2, inner), hidden}, "mlp.down_proj.weight": {hidden, inner}}, nil},
		{[]string{"gpt_oss"}, map[string][]dim{"self_attn.q_proj.weight": {queries, hidden}, "self_attn.k_proj.weight": {keys, hidden}, "self_attn.v_proj.weight": {keys, hidden}, "self_attn.sinks": {key("num_attention_heads")}, "mlp.router.weight": {experts, hidden}, "mlp.experts.down_proj": {experts, inner, hidden}}, nil},
		{[]string{"mixtral"}, map[string][]dim{"block_sparse_moe.gate.weight": {experts, hidden}, "block_sparse_moe.experts.0.w1.weight": {inner, hidden}}, nil},
		{[]string{"qwen2_moe", "qwen3_moe", "deepseek_v3"}, map[string][]dim{"mlp.gate.weight": {experts, hidden}, "mlp.experts.0.gate_proj.weight": {small, hidden}}, nil},
		{[]string{"deepseek_v3"}, map[string][]dim{"self_attn.kv_a_proj_with_mqa.weight": {plus(key("kv_lora_rank"), key("qk_rope_head_dim")), hidden}, "self_attn.kv_a_layernorm.weight": {key("kv_lora_rank")}}, nil},
		{[]string{"electra"}, nil, map[string][]dim{"embeddings.word_embeddings.weight": {vocab, key("embedding_size")}}},
		{[]string{"clip_text_model", "siglip_text_model"}, map[string][]dim{"self_attn.q_proj.weight": {hidden, hidden}, "mlp.fc1.weight": {inner, hidden}}, map[string][]dim{"embeddings.token_embedding.weight": {vocab, hidden}, "embeddings.position_embedding.weight": {places, hidden}}},
		{[]string{"clip_vision_model", "siglip_vision_model"}, map[string][]dim{"self_attn.q_proj.weight": {hidden, hidden}, "mlp.fc1.weight": {inner, hidden}}, map[string][]dim{"embeddings.patch_embedding.weight": {hidden, key("num_channels"), key("patch_size"), key("patch_size")}}},
		{[]string{"clip_vision_model"}, nil, map[string][]dim{"embeddings.position_embedding.weight": {patches(1), hidden}}},
		{[]string{"siglip_vision_model"}, nil, map[string][]dim{"embeddings.position_embedding.weight": {patches(0), hidden}}},
		{[]string{"bart", "mbart", "m2m_100", "marian", "pegasus", "whisper"}, nil, map[string][]dim{"encoder.layers.0.fc1.weight": {key("encoder_ffn_dim"), model}, "decoder.layers.0.fc1.weight": {key("decoder_ffn_dim"), model}}},
		{[]string{"bart", "mbart"}, nil, map[string][]dim{"encoder.embed_positions.weight": {plus(places, times(2, one)), model}, "decoder.embed_positions.weight": {plus(places, times(2, one)), model}}},
		{[]string{"whisper"}, nil, map[string][]dim{"encoder.embed_positions.weight": {key("max_source_positions"), model}, "decoder.embed_positions.weight": {key("max_target_positions"), model}, "encoder.conv1.weight": {model, key("num_mel_bins"), nil}}},
		{[]string{"gpt_neox"}, map[string][]dim{"attention.query_key_value.weight": {times(3, hidden), hidden}, "mlp.dense_h_to_4h.weight": {inner, hidden}, "mlp.dense_4h_to_h.weight": {hidden, inner}}, map[string][]dim{"embed_in.weight": {vocab, hidden}}},
		{[]string{"bloom"}, map[string][]dim{"self_attention.query_key_value.weight": {times(3, hidden), hidden}}, map[string][]dim{"word_embeddings.weight": {vocab, hidden}}},
		{[]string{"gptj"}, map[string][]dim{"attn.q_proj.weight": {embd, embd}, "mlp.fc_in.weight": {innerOf, embd}}, map[string][]dim{"wte.weight": {vocab, embd}}},
		{[]string{"opt"}, map[string][]dim{"self_attn.q_proj.weight": {hidden, hidden}, "fc1.weight": {key("ffn_dim"), hidden}, "fc2.weight": {hidden, key("ffn_dim")}}, map[string][]dim{"embed_tokens.weight": {vocab, or(key("word_embed_proj_dim"), hidden)}}},
		{[]string{"distilbert"}, map[string][]dim{"attention.q_lin.weight": {key("dim"), key("dim")}, "ffn.lin1.weight": {key("hidden_dim"), key("dim")}, "ffn.lin2.weight": {key("dim"), key("hidden_dim")}},
			map[string][]dim{"embeddings.word_embeddings.weight": {vocab, key("dim")}, "embeddings.position_embeddings.weight": {places, key("dim")}}},
		{[]string{"mpnet"}, map[string][]dim{"attention.attn.q.weight": {hidden, hidden}, "intermediate.dense.weight": {inner, hidden}}, map[string][]dim{"embeddings.word_embeddings.weight": {vocab, hidden}, "embeddings.position_embeddings.weight": {places, hidden}}},
		{[]string{"deberta-v2"}, map[string][]dim{"attention.self.query_proj.weight": {hidden, hidden}, "intermediate.dense.weight": {inner, hidden}}, map[string][]dim{"embeddings.word_embeddings.weight": {vocab, nil}, "embeddings.position_embeddings.weight": {places, nil}}},
		{[]string{"albert"}, map[string][]dim{"albert_layers.0.attention.query.weight": {hidden, hidden}, "albert_layers.0.ffn.weight": {inner, hidden}}, map[string][]dim{
			"embeddings.word_embeddings.weight": {vocab, key("embedding_size")}, "embeddings.position_embeddings.weight": {places, key("embedding_size")}, "embeddings.token_type_embeddings.weight": {key("type_vocab_size"), key("embedding_size")},
		}},
		{[]string{"modernbert"}, map[string][]dim{"attn.Wqkv.weight": {times(3, hidden), hidden}, "mlp.Wi.weight": {times(2, inner), hidden}, "mlp.Wo.weight": {hidden, inner}}, map[string][]dim{"embeddings.tok_embeddings.weight": {vocab, hidden}}},
		{[]string{"t5", "mt5", "umt5"}, map[string][]dim{"layer.0.SelfAttention.q.weight": {product(key("num_heads"), key("d_kv")), model}, "layer.1.DenseReluDense.wo.weight": {model, key("d_ff")}, "layer.2.DenseReluDense.wo.weight": {model, key("d_ff")},
			"layer.0.SelfAttention.relative_attention_bias.weight": {key("relative_attention_num_buckets"), key("num_heads")}}, nil},
		{[]string{"bart", "mbart", "m2m_100", "marian", "pegasus", "whisper"}, map[string][]dim{"self_attn.q_proj.weight": {model, model}}, nil},
		{[]string{"vit", "deit"}, map[string][]dim{"intermediate.dense.weight": {inner, hidden}}, nil},
		{[]string{"vit", "deit", "dinov2"}, map[string][]dim{"attention.attention.query.weight": {hidden, hidden}}, map[string][]dim{"embeddings.patch_embeddings.projection.weight": {hidden, key("num_channels"), key("patch_size"), key("patch_size")}}},
		{[]string{"vit"}, nil, map[string][]dim{"embeddings.position_embeddings": {nil, patches(1), hidden}}},
		{[]string{"mamba"}, map[string][]dim{"norm.weight": {hidden}}, map[string][]dim{"embeddings.weight": {vocab, hidden}}},
		{llamas, map[string][]dim{"mlp.gate_proj.weight": {inner, hidden}, "mlp.up_proj.weight": {inner, hidden}, "mlp.down_proj.weight": {hidden, inner}}, nil},
		{[]string{"bert", "roberta", "xlm-roberta", "camembert", "electra"}, map[string][]dim{
			"attention.self.query.weight": {hidden, hidden}, "attention.self.key.weight": {hidden, hidden}, "attention.self.value.weight": {hidden, hidden}, "attention.output.dense.weight": {hidden, hidden},
			"attention.self.query.bias": {hidden}, "attention.self.key.bias": {hidden}, "attention.self.value.bias": {hidden}, "attention.output.dense.bias": {hidden},
			"intermediate.dense.weight": {inner, hidden}, "intermediate.dense.bias": {inner}, "output.dense.weight": {hidden, inner}, "output.dense.bias": {hidden},
			"attention.output.LayerNorm.weight": {hidden}, "attention.output.LayerNorm.bias": {hidden}, "output.LayerNorm.weight": {hidden}, "output.LayerNorm.bias": {hidden},
		}, map[string][]dim{
			"embeddings.word_embeddings.weight": {vocab, nil}, "embeddings.position_embeddings.weight": {places, nil}, "embeddings.token_type_embeddings.weight": {key("type_vocab_size"), nil},
		}},
		{[]string{"gpt2"}, map[string][]dim{
			"attn.c_attn.weight": {embd, times(3, embd)}, "attn.c_attn.bias": {times(3, embd)}, "attn.c_proj.weight": {embd, embd}, "attn.c_proj.bias": {embd},
			"mlp.c_fc.weight": {embd, innerOf}, "mlp.c_fc.bias": {innerOf}, "mlp.c_proj.weight": {innerOf, embd}, "mlp.c_proj.bias": {embd},
			"ln_1.weight": {embd}, "ln_1.bias": {embd}, "ln_2.weight": {embd}, "ln_2.bias": {embd},
		}, map[string][]dim{"ln_f.weight": {embd}, "ln_f.bias": {embd}, "wte.weight": {vocab, embd}, "wpe.weight": {key("n_positions"), embd}}},
	}
})

// judgeShapes notes the first tensor of a stack whose shape differs from the one that follows from the config, or
// from the shape of the same tensor in another layer.
func (d *directory) judgeShapes(l *layout, s *set, prefix string, have stack, fields map[string]any) {
	modelType, _ := fields["model_type"].(string)
	pruned, _ := fields["pruned_heads"].(map[string]any)
	for _, row := range shapes() {
		if slices.Contains(row.types, modelType) && len(pruned) == 0 && d.judgeShapesOf(l, s, prefix, have, row, fields) {
			return
		}
	}
	for _, rest := range slices.Sorted(maps.Keys(have)) {
		layers := slices.Sorted(slices.Values(have[rest]))
		if l.mixed && !slices.Contains(l.layer, rest) || !l.mixed && isSingle(rest) {
			continue
		}
		name := func(n int) string { return fmt.Sprintf("%s%s%d.%s", prefix, l.stack, n, rest) }
		first, _ := d.info(s, name(layers[0]))
		for _, n := range layers[1:] {
			if i, _ := d.info(s, name(n)); !slices.Equal(i.shape, first.shape) {
				d.noteConfig(s, name(n), fmt.Sprintf("that all layers are alike, but %s has %s and %s has %s", quoted(name(layers[0])), shapetext.Of(first.shape), quoted(name(n)), shapetext.Of(i.shape)))
				return
			}
		}
	}
}

// judgeShapesOf compares the tensors of a stack with the shapes that follow from a config.
// It reports whether it noted a finding.
func (d *directory) judgeShapesOf(l *layout, s *set, prefix string, have stack, row shaped, fields map[string]any) (noted bool) {
	for _, rest := range slices.Sorted(maps.Keys(row.layer)) {
		for _, n := range slices.Sorted(slices.Values(have[rest])) {
			if d.otherShape(s, fmt.Sprintf("%s%s%d.%s", prefix, l.stack, n, rest), row.layer[rest], fields) {
				return true
			}
		}
	}
	for _, rest := range slices.Sorted(maps.Keys(row.model)) {
		if d.otherShape(s, prefix+rest, row.model[rest], fields) {
			return true
		}
	}
	return false
}

// otherShape notes a tensor whose shape differs from the one that follows from a config.
func (d *directory) otherShape(s *set, name string, dims []dim, fields map[string]any) bool {
	i, found := d.info(s, name)
	if !found {
		return false
	}
	same, known := len(i.shape) == len(dims), false
	var want []string
	for at, of := range dims {
		n, ok := 0, false
		if of != nil {
			n, ok = of(fields)
		}
		if !ok {
			want = append(want, "any")
			continue
		}
		known = true
		want = append(want, fmt.Sprint(n))
		same = same && n == i.shape[at]
	}
	if same || !known {
		return false
	}
	d.noteConfig(s, name, fmt.Sprintf("that %s has the shape [%s], but it has %s", quoted(name), strings.Join(want, ","), shapetext.Of(i.shape)))
	return true
}
