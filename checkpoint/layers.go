package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// A layout describes the layers of some architectures of transformers. All layers have the same tensors, which no
// setting of the config removes. Architectures whose layers differ from each other, such as hybrids and models that
// share keys and values between layers, have no layout.
type layout struct {
	types []string // values of model_type
	count string   // keys of the config, separated by spaces; the first one that is present gives the number of layers
	stack string   // text before the number of a layer: "encoder.layer." in bert.encoder.layer.0.output.dense.weight

	layer []string // names of the tensors of a layer
	model []string // names of tensors outside of the layers, such as the embedding, below the same prefix as the stack

	mixed bool // whether some layers also have other tensors, such as experts
}

// named returns the names of the tensors of some modules, each of which has tensors with these endings.
func named(modules []string, endings ...string) (names []string) {
	for _, m := range modules {
		for _, ending := range endings {
			names = append(names, m+ending)
		}
	}
	return names
}

func withBias(modules ...string) []string  { return named(modules, ".weight", ".bias") }
func weightsOf(modules ...string) []string { return named(modules, ".weight") }
func biasesOf(modules ...string) []string  { return named(modules, ".bias") }

var (
	attention = weightsOf("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
	gatedMLP  = weightsOf("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
	twoNorms  = weightsOf("input_layernorm", "post_attention_layernorm")
	ofDecoder = weightsOf("embed_tokens", "norm")

	// attentionOfBART omits the bias of k_proj, which Whisper does not have.
	attentionOfBART = []string{"q_proj.weight", "q_proj.bias", "k_proj.weight", "v_proj.weight", "v_proj.bias", "out_proj.weight", "out_proj.bias"}
	layerOfBART     = slices.Concat(below("self_attn.", attentionOfBART), withBias("self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"))
	decoderOfBART   = slices.Concat(layerOfBART, below("encoder_attn.", attentionOfBART), withBias("encoder_attn_layer_norm"))
	layerOfCLIP     = slices.Concat(below("self_attn.", attentionOfBART), withBias("layer_norm1", "layer_norm2", "mlp.fc1", "mlp.fc2"))
)

func below(prefix string, names []string) []string {
	names = slices.Clone(names)
	for i := range names {
		names[i] = prefix + names[i]
	}
	return names
}

// layouts lists the architectures whose layers are known. An architecture may have several rows. The table is built on
// first use.
var layouts = sync.OnceValue(func() []layout {
	return []layout{
		{[]string{"llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "smollm3", "ministral", "helium", "seed_oss", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen3_vl_text"},
			"num_hidden_layers", "layers.", slices.Concat(attention, gatedMLP, twoNorms), ofDecoder, false},
		{[]string{"olmo", "olmo2", "olmo3", "cohere", "cohere2", "stablelm"}, "num_hidden_layers", "layers.", slices.Concat(attention, gatedMLP), weightsOf("embed_tokens"), false},
		{[]string{"mixtral", "olmoe", "starcoder2"}, "num_hidden_layers", "layers.", slices.Concat(attention, twoNorms), ofDecoder, false},
		{[]string{"qwen2_moe", "qwen3_moe"}, "num_hidden_layers", "layers.", slices.Concat(attention, twoNorms), ofDecoder, true},
		{[]string{"phi3"}, "num_hidden_layers", "layers.", slices.Concat(weightsOf("self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"), twoNorms), ofDecoder, false},
		{[]string{"phi"}, "num_hidden_layers", "layers.", withBias("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.dense", "mlp.fc1", "mlp.fc2", "input_layernorm"), withBias("final_layernorm"), false},
		{[]string{"gpt2"}, "n_layer", "h.", withBias("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"), append(withBias("ln_f"), weightsOf("wte", "wpe")...), false},
		{[]string{"gpt_neox"}, "num_hidden_layers", "layers.", slices.Concat(weightsOf("attention.query_key_value", "attention.dense"), withBias("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "input_layernorm", "post_attention_layernorm")), append(withBias("final_layer_norm"), "embed_in.weight"), false},
		{[]string{"gptj"}, "n_layer", "h.", slices.Concat(weightsOf("attn.q_proj", "attn.k_proj", "attn.v_proj", "attn.out_proj"), withBias("ln_1", "mlp.fc_in", "mlp.fc_out")), append(withBias("ln_f"), "wte.weight"), false},
		{[]string{"bloom"}, "n_layer", "h.", withBias("input_layernorm", "self_attention.query_key_value", "self_attention.dense", "post_attention_layernorm", "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), append(withBias("ln_f", "word_embeddings_layernorm"), "word_embeddings.weight"), false},
		{[]string{"bart", "mbart", "m2m_100", "marian", "pegasus"}, "encoder_layers", "encoder.layers.", layerOfBART, nil, false},
		{[]string{"opt"}, "num_hidden_layers", "layers.", weightsOf("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj", "fc1", "fc2"), weightsOf("embed_tokens", "embed_positions"), false},
		{[]string{"whisper"}, "encoder_layers", "encoder.layers.", layerOfBART, append(withBias("encoder.conv1", "encoder.conv2", "encoder.layer_norm"), "encoder.embed_positions.weight"), false},
		{[]string{"whisper"}, "decoder_layers", "decoder.layers.", decoderOfBART, append(withBias("decoder.layer_norm"), "decoder.embed_positions.weight"), false},
		{[]string{"bart", "mbart", "m2m_100", "marian", "pegasus"}, "decoder_layers", "decoder.layers.", decoderOfBART, nil, false},
		{[]string{"bert", "roberta", "xlm-roberta", "camembert", "electra"}, "num_hidden_layers", "encoder.layer.",
			withBias("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
			append(withBias("embeddings.LayerNorm"), weightsOf("embeddings.word_embeddings", "embeddings.position_embeddings", "embeddings.token_type_embeddings")...), false},
		{[]string{"distilbert"}, "n_layers", "transformer.layer.", withBias("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2", "output_layer_norm"),
			append(withBias("embeddings.LayerNorm"), weightsOf("embeddings.word_embeddings", "embeddings.position_embeddings")...), false},
		{[]string{"mpnet"}, "num_hidden_layers", "encoder.layer.", withBias("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "attention.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
			append(withBias("embeddings.LayerNorm"), weightsOf("embeddings.word_embeddings", "embeddings.position_embeddings", "encoder.relative_attention_bias")...), false},
		{[]string{"deberta-v2"}, "num_hidden_layers", "encoder.layer.", withBias("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense", "attention.output.LayerNorm", "intermediate.dense", "output.dense", "output.LayerNorm"),
			append(withBias("embeddings.LayerNorm"), "embeddings.word_embeddings.weight"), false},
		{[]string{"albert"}, "num_hidden_groups", "encoder.albert_layer_groups.", below("albert_layers.0.", withBias("full_layer_layer_norm", "attention.query", "attention.key", "attention.value", "attention.dense", "attention.LayerNorm", "ffn", "ffn_output")),
			append(withBias("embeddings.LayerNorm", "encoder.embedding_hidden_mapping_in"), weightsOf("embeddings.word_embeddings", "embeddings.position_embeddings", "embeddings.token_type_embeddings")...), false},
		{[]string{"vit", "deit"}, "num_hidden_layers", "encoder.layer.", slices.Concat(weightsOf("attention.attention.query", "attention.attention.key", "attention.attention.value"),
			withBias("attention.output.dense", "intermediate.dense", "output.dense", "layernorm_before", "layernorm_after")), []string{"embeddings.cls_token", "embeddings.position_embeddings", "embeddings.patch_embeddings.projection.weight"}, false},
		{[]string{"dinov2"}, "num_hidden_layers", "encoder.layer.", slices.Concat(weightsOf("attention.attention.query", "attention.attention.key", "attention.attention.value"),
			withBias("attention.output.dense", "norm1", "norm2")), []string{"embeddings.cls_token", "embeddings.position_embeddings", "embeddings.patch_embeddings.projection.weight"}, false},
		{[]string{"clip", "clip_text_model", "clip_vision_model", "siglip", "siglip_text_model", "siglip_vision_model"}, "num_hidden_layers", "encoder.layers.", layerOfCLIP, nil, false},
		{[]string{"t5", "mt5", "umt5"}, "num_layers", "encoder.block.", weightsOf("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v", "layer.0.SelfAttention.o", "layer.0.layer_norm", "layer.1.layer_norm", "layer.1.DenseReluDense.wo"), weightsOf("encoder.final_layer_norm", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias"), false},
		{[]string{"t5", "mt5", "umt5"}, "num_decoder_layers num_layers", "decoder.block.", weightsOf("layer.0.SelfAttention.q", "layer.0.SelfAttention.k", "layer.0.SelfAttention.v", "layer.0.SelfAttention.o", "layer.0.layer_norm", "layer.1.EncDecAttention.q", "layer.1.EncDecAttention.k",
			"layer.1.EncDecAttention.v", "layer.1.EncDecAttention.o", "layer.1.layer_norm", "layer.2.layer_norm", "layer.2.DenseReluDense.wo"), weightsOf("decoder.final_layer_norm", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias"), false},
		{[]string{"deepseek_v2", "deepseek_v3", "glm4_moe_lite"}, "num_hidden_layers", "layers.", slices.Concat(weightsOf("self_attn.kv_a_proj_with_mqa", "self_attn.kv_a_layernorm", "self_attn.kv_b_proj", "self_attn.o_proj"), twoNorms), ofDecoder, true},
		{[]string{"gpt_oss"}, "num_hidden_layers", "layers.", slices.Concat(attention, twoNorms), ofDecoder, false},
		{[]string{"modernbert"}, "num_hidden_layers", "layers.", weightsOf("attn.Wqkv", "attn.Wo", "mlp.Wi", "mlp.Wo", "mlp_norm"), weightsOf("embeddings.tok_embeddings", "embeddings.norm", "final_norm"), true},
		{[]string{"glm4_moe", "llama4_text"}, "num_hidden_layers", "layers.", slices.Concat(attention, twoNorms), ofDecoder, true},
		{[]string{"qwen2_vl", "qwen2_vl_vision"}, "depth", "blocks.", withBias("norm1", "norm2", "attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"), append(withBias("merger.ln_q", "merger.mlp.0", "merger.mlp.2"), "patch_embed.proj.weight"), false},
		{[]string{"qwen2_5_vl", "qwen2_5_vl_vision"}, "depth", "blocks.", append(weightsOf("norm1", "norm2"), withBias("attn.qkv", "attn.proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")...), append(withBias("merger.mlp.0", "merger.mlp.2"), weightsOf("merger.ln_q", "patch_embed.proj")...), false},
		{[]string{"mamba"}, "num_hidden_layers", "layers.", append(weightsOf("mixer.in_proj", "mixer.out_proj", "mixer.x_proj", "mixer.dt_proj", "mixer.conv1d", "norm"), "mixer.A_log", "mixer.D"), weightsOf("norm_f"), false},
		// The rows below list tensors that only some of the architectures of a row above have. The shapes in a stack are judged
		// once, by the first row that finds the stack.
		{[]string{"qwen3", "qwen3_moe", "gemma3_text", "qwen3_vl_text"}, "num_hidden_layers", "layers.", append(weightsOf("self_attn.q_norm", "self_attn.k_norm"), attention...), nil, true},
		{[]string{"qwen2", "qwen2_vl_text", "qwen2_5_vl_text"}, "num_hidden_layers", "layers.", append(biasesOf("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), attention...), nil, true},
		{[]string{"cohere", "cohere2"}, "num_hidden_layers", "layers.", append(weightsOf("input_layernorm"), attention...), weightsOf("norm"), true},
		{[]string{"olmo2", "olmo3"}, "num_hidden_layers", "layers.", slices.Concat(weightsOf("post_attention_layernorm", "post_feedforward_layernorm", "self_attn.q_norm", "self_attn.k_norm"), gatedMLP, attention), weightsOf("norm"), true},
		{[]string{"gemma2", "gemma3_text"}, "num_hidden_layers", "layers.", append(weightsOf("pre_feedforward_layernorm", "post_feedforward_layernorm"), attention...), nil, true},
	}
})

// optional lists the weights and biases that layers have in some models of an architecture and lack in others. If an
// architecture is in this table, even in a row with nil, its layers have no other weights and biases than those that
// optional and layouts list. The table is built on first use.
var optional = sync.OnceValue(func() []group {
	return []group{
		{[]string{"llama", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "smollm3", "helium", "seed_oss", "olmo", "olmo2", "olmo3", "cohere", "cohere2", "qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"}, biasesOf("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")},
		{[]string{"llama", "qwen3", "gemma", "gemma2", "gemma3_text", "granite", "smollm3", "seed_oss", "olmo", "olmo2", "olmo3", "cohere", "cohere2", "qwen3_vl_text"}, biasesOf("self_attn.o_proj")},
		{[]string{"llama", "granite", "smollm3", "helium", "seed_oss"}, biasesOf("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")},
		{[]string{"mistral", "ministral", "phi3", "gptj", "bloom", "distilbert", "mpnet", "whisper"}, nil},
		{[]string{"cohere"}, weightsOf("self_attn.q_norm", "self_attn.k_norm")},
		{[]string{"gpt_neox"}, biasesOf("attention.query_key_value", "attention.dense")},
		{[]string{"clip", "clip_text_model", "clip_vision_model", "siglip", "siglip_text_model", "siglip_vision_model", "bart", "mbart", "m2m_100", "marian", "pegasus", "opt"}, biasesOf("self_attn.k_proj", "encoder_attn.k_proj")},
		{[]string{"opt"}, layerOfBART},
	}
})

// isKnown reports whether the layers of an architecture are known.
func isKnown(modelType string) bool {
	return slices.ContainsFunc(layouts(), func(l layout) bool { return slices.Contains(l.types, modelType) })
}

// lacking notes the tensors that are missing in a model whose architecture is known: tensors that one layer
// lacks and others have, layers without tensors, tensors next to the layers, and parts of heads. It reports
// whether it noted a finding.
func (d *directory) lacking(config *modelConfig, s *set) bool {
	quantised := config.Quantization != nil || config.MLX != nil
	where := s.where
	if quantised {
		where = withModules(where)
	}
	tied := config.Tie == nil || *config.Tie
	tied = tied && slices.ContainsFunc(sortedNames(s.where), isOutput)
	missing, shaped := make(map[string]bool), make(map[string]bool)
	configs := config.parts()
	known, found, excess := false, false, ""
	for _, l := range layouts() {
		at := slices.IndexFunc(configs, func(p configPart) bool { return slices.Contains(l.types, p.Type) })
		if at < 0 {
			continue
		}
		known = true
		stacks := l.stacks(where, config.Remote || where["fc.weight"] != "") // a model with fc.weight is a draft model of EAGLE
		if len(stacks) > maxStacks {
			continue
		}
		if class := config.class(); at == 0 && l.count != "" && len(stacks) == 0 && (strings.HasSuffix(class, "ForConditionalGeneration") || strings.HasSuffix(class, "MTModel")) {
			missing[l.stack+"0."+l.layer[0]] = !quantised // such a class has an encoder and a decoder
		}
		ours := maps.Clone(stacks)
		maps.DeleteFunc(ours, func(_ string, have stack) bool { return len(configs) > 1 && l.foreign(have) })
		for prefix, have := range stacks {
			found = true
			if at > 0 && ours[prefix] == nil {
				continue
			}
			part, sure := l.partOf(configs, prefix)
			count := 0
			// A model of several parts may have several such stacks. Then it must be certain that part describes this one.
			if sure || len(configs) == 1 || len(ours) == 1 {
				count, _ = key(strings.Fields(l.count)...)(part.fields)
			}
			if next, _ := number(part.fields["num_nextn_predict_layers"]); next == 0 && excess == "" {
				if excess = l.beyond(have, part, count); excess == "" && !quantised && (sure || len(configs) == 1) && config.class() != "" && where["fc.weight"] == "" {
					excess = l.unknown(prefix, have, part)
				}
			}
			for _, name := range l.missing(where, prefix, have, count, quantised) {
				// An embedding that is tied to the head may be stored as the head. In QianfanOCR the embedding is
				// beside the encoder that contains the layers, and not within it.
				missing[name] = (!tensorname.IsEmbedding(name) || !tied) && (at == 0 || where[outer(prefix)+strings.TrimPrefix(name, prefix)] == "")
			}
			if !quantised && !shaped[prefix+" "+l.stack] {
				d.judgeShapes(&l, s, prefix, have, part.fields)
			}
			shaped[prefix+" "+l.stack] = true
		}
	}
	if known && !found && isKnown(config.Type) && len(config.Architectures) > 0 && !quantised && !config.Remote && where["fc.weight"] == "" && d.plain(s) {
		d.noteConfig(s, "", fmt.Sprintf("model_type %s, but %s has no complete layer of such a model", quoted(config.Type), quoted(d.fileOf(s, ""))))
		return true
	}
	if !quantised {
		for _, name := range missingOfGroups(s.where, configs) {
			missing[name] = !isOutput(name) || config.Tie == nil || !*config.Tie // a tied head has no weight of its own, but it has a bias
		}
	}
	maps.DeleteFunc(missing, func(_ string, is bool) bool { return !is })
	if len(missing) == 0 {
		if excess != "" {
			d.noteConfig(s, "", excess)
		}
		return excess != ""
	}
	names := slices.Sorted(maps.Keys(missing))
	first := d.fileOf(s, "")
	are, them := "is", "it"
	if len(names) > 1 {
		are, them = "are", "them"
	}
	d.note(Missing, names[0], fmt.Sprintf("%s %s not stored, but a model of the type %s in %s has %s: programs set %s at random", tensorText(names), are, quoted(config.Type), quoted(d.at(configFile)), them, them), first, d.at(configFile))
	return true
}

// partOf returns the config that describes a stack. Among the configs with a type of the layout, it prefers the one
// that belongs to the same part of the model as the stack, judging by the text before the stack: vision_config, or the
// config of the language model. If there is none, it returns the first config, and sure is false.
func (l *layout) partOf(configs []configPart, prefix string) (part configPart, sure bool) {
	found := false
	for _, p := range configs {
		if !slices.Contains(l.types, p.Type) {
			continue
		}
		if !found {
			part, found = p, true
		}
		vision := strings.Contains(prefix, "vis")
		language := p.path != "" && modelconfig.OfLanguage(strings.Split(strings.TrimSuffix(p.path, "."), "."))
		if language && !vision || p.path == "vision_config." && vision {
			return p, true
		}
	}
	return part, false
}

// withModules returns the tensors of a quantised model and, for each module that has a part other than a bias, its weight,
// so that a weight that is stored in parts is not considered missing.
func withModules(where place) place {
	all := maps.Clone(where)
	for name, file := range where {
		if i := strings.LastIndexByte(name, '.'); i > 0 && name[i:] != ".bias" {
			if weight := name[:i] + ".weight"; all[weight] == "" {
				all[weight] = file
			}
		}
	}
	return all
}

// cutLayer splits the name of a tensor in a layer into the text before the stack, the number of the layer, and
// the name in the layer.
func (l *layout) cutLayer(name string) (prefix string, number int, rest string, ok bool) {
	at := strings.Index("."+name, "."+l.stack)
	if at < 0 {
		return "", 0, "", false
	}
	digits, rest, found := strings.Cut(name[at+len(l.stack):], ".")
	number, err := strconv.Atoi(digits)
	if !found || err != nil || number < 0 || number > 100_000 {
		return "", 0, "", false
	}
	return name[:at], number, rest, true
}

const (
	maxStacks  = 64      // largest number of stacks that fit one layout; a model with more is not judged by this layout
	maxMissing = 100_000 // largest number of missing tensors of one stack that are counted
)

// A stack maps the name of a tensor in a layer to the numbers of the layers that have it.
type stack map[string][]int

// stacks returns the stacks of layers, by the text before the stack. At least one layer of a stack must have more than half
// of the tensors of the layout, or all of them if all is true.
func (l *layout) stacks(where place, all bool) map[string]stack {
	type layer struct {
		prefix string
		number int
	}
	enough := len(l.layer)/2 + 1
	if all {
		enough = len(l.layer)
	}
	have := make(map[layer]int) // number of tensors of the layout in each layer
	stacks, accepted := make(map[string]stack), make(map[string]bool)
	for name := range where {
		prefix, n, rest, ok := l.cutLayer(name)
		if !ok {
			continue
		}
		if stacks[prefix] == nil {
			stacks[prefix] = make(stack)
		}
		stacks[prefix][rest] = append(stacks[prefix][rest], n)
		if slices.Contains(l.layer, rest) {
			at := layer{prefix, n}
			have[at]++
			accepted[prefix] = accepted[prefix] || have[at] == enough
		}
	}
	maps.DeleteFunc(stacks, func(prefix string, _ stack) bool { return !accepted[prefix] })
	return stacks
}

// foreign reports whether all layers of a stack lack the same tensor of the layout. In a model with several parts, such a stack
// belongs to another part, as the resampler of Idefics2 does, or its tensors have other names than usual, as those of
// the Qwen3-VL in Cosmos3 do.
func (l *layout) foreign(have stack) bool {
	return slices.ContainsFunc(l.layer, func(rest string) bool { return len(have[rest]) == 0 })
}

// missing returns the tensors that a stack lacks, at most maxMissing. count is the number of its layers, or 0 if the
// config does not specify it. If the model is quantised, missing looks only for tensors of the layout, because some
// layers may lack parts that others have.
func (l *layout) missing(where place, prefix string, have stack, count int, quantised bool) (names []string) {
	rests := slices.Clone(l.layer)
	last := count - 1
	for rest, layers := range have {
		if count <= 0 && slices.Contains(l.layer, rest) {
			last = max(last, slices.Max(layers))
		}
	}
	last = min(last, 10_000)
	for rest, layers := range have {
		if !slices.Contains(l.layer, rest) && !l.mixed && !quantised && !isSingle(rest) && 2*len(layers) > last {
			rests = append(rests, rest)
		}
	}
	lack := func(name string) {
		if len(names) < maxMissing && where[name] == "" && where[oldNames.Replace(name)] == "" {
			names = append(names, name)
		}
	}
	for n := range last + 1 {
		for _, rest := range rests {
			lack(fmt.Sprintf("%s%s%d.%s", prefix, l.stack, n, rest))
		}
	}
	for _, name := range l.model {
		lack(prefix + name)
	}
	return names
}

// beyond returns the text of a finding if a stack has more layers than the config of its part specifies, or "".
func (l *layout) beyond(have stack, part configPart, count int) string {
	last := -1
	for _, rest := range l.layer {
		if len(have[rest]) > 0 {
			last = max(last, slices.Max(have[rest]))
		}
	}
	if count == 0 || last < count {
		return ""
	}
	return fmt.Sprintf("%s%s %d, but there are tensors of layer %d", cut(part.path), strings.Fields(l.count)[0], count, last)
}

// unknown returns the text of a finding if the layers of a stack have a weight or a bias that those of the architecture
// never have, so that libraries leave it out. Otherwise, and if the architecture is not in optional, it returns "".
func (l *layout) unknown(prefix string, have stack, part configPart) string {
	known := slices.Clone(l.layer)
	closed := false
	for _, g := range optional() {
		if slices.Contains(g.types, part.Type) {
			known, closed = append(known, g.names...), true
		}
	}
	for _, other := range layouts() {
		if slices.Contains(other.types, part.Type) {
			known = append(known, other.layer...)
		}
	}
	for _, rest := range slices.Sorted(maps.Keys(have)) {
		isPart := strings.HasSuffix(rest, ".weight") || strings.HasSuffix(rest, ".bias")
		if closed && isPart && !isBuffer(rest) && !slices.Contains(known, rest) {
			name := fmt.Sprintf("%s%s%d.%s", prefix, l.stack, slices.Min(have[rest]), rest)
			return fmt.Sprintf("%smodel_type %s, but %s is stored, which such a model does not have: libraries leave it out", cut(part.path), quoted(part.Type), quoted(name))
		}
	}
	return ""
}

// isSingle reports whether a tensor may be in only one of the layers, or is a buffer that models compute.
func isSingle(rest string) bool {
	return isBuffer(rest) || strings.HasSuffix(rest, ".relative_attention_bias.weight") || strings.HasSuffix(rest, ".gamma") || strings.HasSuffix(rest, ".beta")
}
