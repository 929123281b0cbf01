package checkpoint

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// classDefaults maps values of model_type for which there is a layout to the numbers, as JSON, that transformers uses
// for keys that a config.json lacks. It has the keys that decide shapes and names of tensors. tie_word_embeddings is
// listed only if its default is false.
var classDefaults = map[string]string{
	"albert":              `{"vocab_size":30000,"hidden_size":4096,"num_hidden_layers":12,"num_attention_heads":64,"intermediate_size":16384,"embedding_size":128,"max_position_embeddings":512,"type_vocab_size":2}`,
	"bart":                `{"vocab_size":50265,"d_model":1024,"encoder_layers":12,"decoder_layers":12,"encoder_ffn_dim":4096,"decoder_ffn_dim":4096}`,
	"mbart":               `{"vocab_size":50265,"d_model":1024,"encoder_layers":12,"decoder_layers":12,"encoder_ffn_dim":4096,"decoder_ffn_dim":4096}`,
	"pegasus":             `{"vocab_size":50265,"d_model":1024,"encoder_layers":12,"decoder_layers":12,"encoder_ffn_dim":4096,"decoder_ffn_dim":4096}`,
	"bert":                `{"vocab_size":30522,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512,"type_vocab_size":2}`,
	"camembert":           `{"vocab_size":30522,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512,"type_vocab_size":2}`,
	"xlm-roberta":         `{"vocab_size":30522,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512,"type_vocab_size":2}`,
	"bloom":               `{"vocab_size":250880,"hidden_size":64,"n_layer":2,"n_head":8}`,
	"clip_text_model":     `{"vocab_size":49408,"hidden_size":512,"num_hidden_layers":12,"num_attention_heads":8,"intermediate_size":2048,"max_position_embeddings":77}`,
	"clip_vision_model":   `{"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"patch_size":32}`,
	"deit":                `{"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072}`,
	"siglip_vision_model": `{"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"patch_size":16}`,
	"vit":                 `{"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072}`,
	"cohere":              `{"vocab_size":256000,"hidden_size":8192,"num_hidden_layers":40,"num_attention_heads":64,"intermediate_size":22528}`,
	"cohere2":             `{"vocab_size":256000,"hidden_size":8192,"num_hidden_layers":40,"num_attention_heads":64,"intermediate_size":22528}`,
	"deberta-v2":          `{"vocab_size":128100,"hidden_size":1536,"num_hidden_layers":24,"num_attention_heads":24,"intermediate_size":6144}`,
	"deepseek_v2":         `{"vocab_size":102400,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":11008,"tie_word_embeddings":false}`,
	"deepseek_v3":         `{"vocab_size":129280,"hidden_size":7168,"num_hidden_layers":61,"num_attention_heads":128,"intermediate_size":18432,"tie_word_embeddings":false,"n_routed_experts":256,"moe_intermediate_size":2048,"kv_lora_rank":512,"qk_rope_head_dim":64}`,
	"dinov2":              `{"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12}`,
	"distilbert":          `{"vocab_size":30522,"dim":768,"n_layers":6,"n_heads":12,"hidden_dim":3072,"max_position_embeddings":512}`,
	"electra":             `{"vocab_size":30522,"hidden_size":256,"num_hidden_layers":12,"num_attention_heads":4,"intermediate_size":1024,"embedding_size":128,"max_position_embeddings":512,"type_vocab_size":2}`,
	"gemma":               `{"vocab_size":256000,"hidden_size":3072,"num_hidden_layers":28,"num_attention_heads":16,"intermediate_size":24576,"num_key_value_heads":16,"head_dim":256}`,
	"gemma2":              `{"vocab_size":256000,"hidden_size":2304,"num_hidden_layers":26,"num_attention_heads":8,"intermediate_size":9216,"num_key_value_heads":4,"head_dim":256}`,
	"gemma3_text":         `{"vocab_size":262208,"hidden_size":2304,"num_hidden_layers":26,"num_attention_heads":8,"intermediate_size":9216,"num_key_value_heads":4,"head_dim":256}`,
	"glm4_moe":            `{"vocab_size":151552,"hidden_size":4096,"num_hidden_layers":46,"num_attention_heads":96,"intermediate_size":10944,"num_key_value_heads":8,"tie_word_embeddings":false}`,
	"glm4_moe_lite":       `{"vocab_size":154880,"hidden_size":2048,"num_hidden_layers":47,"num_attention_heads":20,"intermediate_size":10240,"tie_word_embeddings":false}`,
	"gpt2":                `{"vocab_size":50257,"n_embd":768,"n_layer":12,"n_head":12,"n_positions":1024}`,
	"gpt_neox":            `{"vocab_size":50432,"hidden_size":6144,"num_hidden_layers":44,"num_attention_heads":64,"intermediate_size":24576,"tie_word_embeddings":false}`,
	"gpt_oss":             `{"vocab_size":201088,"hidden_size":2880,"num_hidden_layers":36,"num_attention_heads":64,"intermediate_size":2880,"num_key_value_heads":8,"head_dim":64,"tie_word_embeddings":false,"num_local_experts":128}`,
	"gptj":                `{"vocab_size":50400,"n_embd":4096,"n_layer":28,"n_head":16,"n_positions":2048,"tie_word_embeddings":false}`,
	"granite":             `{"vocab_size":32000,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":11008,"tie_word_embeddings":false}`,
	"llama":               `{"vocab_size":32000,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":11008,"tie_word_embeddings":false}`,
	"helium":              `{"vocab_size":48000,"hidden_size":2560,"num_hidden_layers":24,"num_attention_heads":20,"intermediate_size":7040,"num_key_value_heads":20,"head_dim":128,"tie_word_embeddings":false}`,
	"llama4_text":         `{"vocab_size":202048,"hidden_size":5120,"num_hidden_layers":48,"num_attention_heads":40,"intermediate_size":8192,"num_key_value_heads":8,"head_dim":128,"tie_word_embeddings":false}`,
	"m2m_100":             `{"vocab_size":128112,"d_model":1024,"encoder_layers":12,"decoder_layers":12,"encoder_ffn_dim":4096,"decoder_ffn_dim":4096}`,
	"mamba":               `{"vocab_size":50280,"hidden_size":768,"num_hidden_layers":32}`,
	"marian":              `{"vocab_size":58101,"d_model":1024,"encoder_layers":12,"decoder_layers":12,"encoder_ffn_dim":4096,"decoder_ffn_dim":4096}`,
	"ministral":           `{"vocab_size":32000,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":14336,"num_key_value_heads":8,"tie_word_embeddings":false}`,
	"mistral":             `{"vocab_size":32000,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":14336,"num_key_value_heads":8,"tie_word_embeddings":false}`,
	"mixtral":             `{"vocab_size":32000,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":14336,"num_key_value_heads":8,"tie_word_embeddings":false,"num_local_experts":8}`,
	"modernbert":          `{"vocab_size":50368,"hidden_size":768,"num_hidden_layers":22,"num_attention_heads":12,"intermediate_size":1152}`,
	"mpnet":               `{"vocab_size":30527,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512}`,
	"mt5":                 `{"vocab_size":250112,"d_model":512,"num_layers":8,"num_heads":6,"d_ff":1024,"d_kv":64}`,
	"umt5":                `{"vocab_size":250112,"d_model":512,"num_layers":8,"num_heads":6,"d_ff":1024,"d_kv":64}`,
	"olmo":                `{"vocab_size":50304,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":11008,"tie_word_embeddings":false}`,
	"olmo2":               `{"vocab_size":50304,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":11008,"tie_word_embeddings":false}`,
	"olmo3":               `{"vocab_size":50304,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":11008,"tie_word_embeddings":false}`,
	"olmoe":               `{"vocab_size":50304,"hidden_size":2048,"num_hidden_layers":16,"num_attention_heads":16,"intermediate_size":2048,"tie_word_embeddings":false}`,
	"opt":                 `{"vocab_size":50272,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"ffn_dim":3072}`,
	"phi":                 `{"vocab_size":51200,"hidden_size":2048,"num_hidden_layers":24,"num_attention_heads":32,"intermediate_size":8192,"tie_word_embeddings":false}`,
	"phi3":                `{"vocab_size":32064,"hidden_size":3072,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":8192,"tie_word_embeddings":false}`,
	"qwen2":               `{"vocab_size":151936,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":22016,"num_key_value_heads":32,"tie_word_embeddings":false}`,
	"qwen2_5_vl_text":     `{"vocab_size":152064,"hidden_size":8192,"num_hidden_layers":80,"num_attention_heads":64,"intermediate_size":29568}`,
	"qwen2_vl_text":       `{"vocab_size":152064,"hidden_size":8192,"num_hidden_layers":80,"num_attention_heads":64,"intermediate_size":29568}`,
	"qwen2_moe":           `{"vocab_size":151936,"hidden_size":2048,"num_hidden_layers":24,"num_attention_heads":16,"intermediate_size":5632,"num_key_value_heads":16,"tie_word_embeddings":false,"num_experts":60,"moe_intermediate_size":1408}`,
	"qwen3":               `{"vocab_size":151936,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":22016,"num_key_value_heads":32,"head_dim":128,"tie_word_embeddings":false}`,
	"qwen3_moe":           `{"vocab_size":151936,"hidden_size":2048,"num_hidden_layers":24,"num_attention_heads":32,"intermediate_size":6144,"num_key_value_heads":4,"tie_word_embeddings":false,"num_experts":128,"moe_intermediate_size":768}`,
	"qwen3_vl_text":       `{"vocab_size":151936,"hidden_size":4096,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":22016}`,
	"roberta":             `{"vocab_size":50265,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":512,"type_vocab_size":2}`,
	"seed_oss":            `{"vocab_size":155136,"hidden_size":4096,"num_hidden_layers":64,"num_attention_heads":80,"intermediate_size":27648,"num_key_value_heads":8,"head_dim":128,"tie_word_embeddings":false}`,
	"siglip_text_model":   `{"vocab_size":32000,"hidden_size":768,"num_hidden_layers":12,"num_attention_heads":12,"intermediate_size":3072,"max_position_embeddings":64}`,
	"smollm3":             `{"vocab_size":128256,"hidden_size":2048,"num_hidden_layers":36,"num_attention_heads":16,"intermediate_size":11008,"num_key_value_heads":4}`,
	"stablelm":            `{"vocab_size":50304,"hidden_size":2560,"num_hidden_layers":32,"num_attention_heads":32,"intermediate_size":6912,"tie_word_embeddings":false}`,
	"starcoder2":          `{"vocab_size":49152,"hidden_size":3072,"num_hidden_layers":30,"num_attention_heads":24,"intermediate_size":12288,"num_key_value_heads":2}`,
	"t5":                  `{"vocab_size":32128,"d_model":512,"num_layers":6,"num_heads":8,"d_ff":2048,"d_kv":64}`,
	"whisper":             `{"vocab_size":51865,"d_model":384,"encoder_layers":4,"decoder_layers":4,"encoder_ffn_dim":1536,"decoder_ffn_dim":1536,"max_source_positions":1500,"max_target_positions":448,"num_mel_bins":80}`,
}

// expertKeys are the names of the number of experts in the layers of a model.
var expertKeys = []string{"num_experts", "num_local_experts", "n_routed_experts"}

// sameKeys lists groups of keys that stand for the same number. For some types, transformers accepts several keys of
// a group.
var sameKeys = [][]string{
	{"hidden_size", "n_embd", "n_embed", "d_model", "dim"},
	{"num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers"},
	{"num_attention_heads", "n_head", "n_heads", "num_heads"},
	{"intermediate_size", "n_inner", "d_ff", "hidden_dim", "ffn_dim", "encoder_ffn_dim"},
	{"max_position_embeddings", "n_positions"},
	expertKeys,
}

// defaultsOf returns the defaults of a type by key. It is empty for a type without defaults.
func defaultsOf(modelType string) (defaults map[string]any) {
	if text, ok := classDefaults[modelType]; ok {
		_ = json.Unmarshal([]byte(text), &defaults)
	}
	return defaults
}

// completed returns the fields of a config with the defaults of its type for the keys that it lacks. A key that is
// present, even as null, has no default.
func completed(fields map[string]any) map[string]any {
	modelType, _ := fields["model_type"].(string)
	defaults := defaultsOf(modelType)
	if len(defaults) == 0 {
		return fields
	}
	all := maps.Clone(fields)
	for key, value := range defaults {
		names := []string{key}
		for _, same := range sameKeys {
			if slices.Contains(same, key) {
				names = same
			}
		}
		if !slices.ContainsFunc(names, func(name string) bool { _, found := fields[name]; return found }) {
			all[key] = value
		}
	}
	return all
}

// wholeKeys are keys for which no architecture of transformers accepts a single value that is not an integer. Some accept
// null, and some a list.
const wholeKeys = "hidden_size num_attention_heads num_hidden_layers intermediate_size vocab_size max_position_embeddings num_key_value_heads head_dim num_channels sliding_window " +
	"num_experts_per_tok moe_intermediate_size d_model type_vocab_size encoder_layers decoder_layers encoder_attention_heads encoder_ffn_dim decoder_ffn_dim num_heads decoder_attention_heads " +
	"projection_dim num_experts n_routed_experts n_group topk_group num_layers depth pretraining_tp num_mel_bins kv_lora_rank q_lora_rank qk_rope_head_dim qk_nope_head_dim v_head_dim num_local_experts"

// notIntegers returns the keys of a config, among wholeKeys and the defaults of its type, with a value that makes no model:
// a number must be an integer there, or null if it may be. known is whether isKnown holds for the type.
func notIntegers(fields map[string]any, known bool) (keys []string) {
	modelType, _ := fields["model_type"].(string)
	defaults := defaultsOf(modelType)
	all := append(strings.Fields(wholeKeys), slices.Collect(maps.Keys(defaults))...)
	for _, key := range slices.Compact(slices.Sorted(slices.Values(all))) {
		value, found := fields[key]
		_, whole := number(value)
		if !found || whole || !known && key == "max_position_embeddings" { // MusicFlamingo has a fraction there
			continue
		}
		_, wrong := defaults[key].(float64)
		switch value.(type) {
		case string:
			wrong = true
		case bool, json.Number:
			wrong = key != "tie_word_embeddings"
		case nil:
			wrong = wrong && key != "num_key_value_heads" && key != "head_dim"
		}
		if wrong {
			keys = append(keys, key)
		}
	}
	return keys
}

// valueText returns a value of a config as JSON, cut for a message.
func valueText(value any) string {
	text, _ := json.Marshal(value) // cannot fail, because the value comes from a JSON parser
	return cut(string(text))
}

// number returns a value of a config as an int. It returns false if the value is not a whole number. In the fields of a
// configPart, a number that JSON spells as a fraction is not whole, even if it is 3.0: Python does not take it for an int.
func number(v any) (int, bool) {
	if n, ok := v.(json.Number); ok {
		i, err := strconv.Atoi(string(n))
		return i, err == nil
	}
	f, ok := v.(float64)
	return int(f), ok && f == float64(int(f))
}
