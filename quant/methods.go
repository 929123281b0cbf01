package quant

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// methods are what a quantization_config may say.
var methods = map[string]struct {
	keys     string                // of a section that the method has
	harmless string                // keys that change no number: how inputs, caches and kernels are used, how the quantisation was calibrated
	use      func(c *config) error // nil: the tensors say the rest
}{
	fp8:    {exceptions + "weight_block_size", blockKeys, nil},
	mxfp8:  {exceptions + "weight_block_size", blockKeys, nil},
	fbgemm: {exceptions, "activation_scale_ub", nil},
	mxfp4:  {exceptions, "dequantize", nil},
	bitsAndBytes: {exceptions, `load_in_8bit load_in_4bit _load_in_8bit _load_in_4bit llm_int8_threshold llm_int8_enable_fp32_cpu_offload
		llm_int8_has_fp16_weight bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_quant_storage`, nil},
	modelOpt: {exceptions + "quant_algo quantized_layers", "config_groups group_size kv_cache_quant_algo kv_cache_scheme producer", nil},
	compressed: {exceptions + "format config_groups transform_config sparsity_config",
		"kv_cache_scheme global_compression_ratio quantization_status version run_compressed dequantize use_optimized_inference", (*config).useGroups},
	gptq: {wordKeys, harmlessWordKeys, (*config).useWords},
	awq:  {wordKeys, harmlessWordKeys, (*config).useWords},
	autoRound: {exceptions + settingsKeys + "packing_format extra_config", `autoround_version sym act_data_type act_group_size act_sym act_dynamic amp backend batch_size
		block_name_to_quantize dataset dynamic_max_gap enable_alg_ext enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input
		enable_torch_compile gradient_accumulate_steps iters low_gpu_mem_usage lr minmax_lr not_use_best_mse nsamples provider
		quant_block_list quant_lm_head scale_dtype seqlen static_attention_dtype static_attention_granularity static_kv_dtype
		static_kv_granularity supported_types to_quant_block_names`, (*config).useAutoRound},
	mlx: {settingsKeys, "", nil},
}

const (
	exceptions       = "ignore ignored_layers exclude_modules modules_to_not_convert llm_int8_skip_modules "
	blockKeys        = "activation_scheme fmt scale_fmt expert_dtype dequantize modules_to_convert kv_cache_scheme kv_cache_quant_method packed_modules_mapping"
	settingsKeys     = "bits group_size desc_act mode data_type act_bits "
	wordKeys         = exceptions + settingsKeys + "checkpoint_format format version pack_dtype static_groups dynamic"
	harmlessWordKeys = `method sym zero_point lm_head meta quantizer dataset tokenizer damp_percent damp_auto_increment true_sequential
		act_group_aware mse batch_size block_name_to_quantize module_name_preceding_first_block modules_in_block_to_quantize
		cache_block_outputs max_input_length model_seqlen pad_token_id model_name_or_path model_file_base_name backend use_exllama
		exllama_config disable_exllama use_cuda_fp16 do_fuse fuse_max_seq_len modules_to_fuse`
)

// A section is a quantization_config: what changes numbers in some method.
type section struct {
	settings
	algorithm
	Block      block                `json:"weight_block_size"`
	Layers     map[string]algorithm `json:"quantized_layers"` // of ModelOpt
	Groups     map[string]group     `json:"config_groups"`    // of compressed-tensors
	Transforms struct {
		Groups map[string]transform `json:"config_groups"`
	} `json:"transform_config"`
	Sparsity struct {
		Format string   `json:"format" of:"dense"` // how weights without zeros are stored
		_      struct{} `known:"ignore registry_requires_subclass sparsity_structure targets global_sparsity"`
	} `json:"sparsity_config"`
	Format     string  `json:"format"` // of compressed-tensors, GPTQ and AWQ
	Checkpoint string  `json:"checkpoint_format"`
	Version    string  `json:"version"` // of AWQ
	Word       string  `json:"pack_dtype" of:"int32"`
	Static     bool    `json:"static_groups"`
	Dynamic    members `json:"dynamic"`        // modules of GPTQ
	Packing    string  `json:"packing_format"` // of AutoRound
	Modules    members `json:"extra_config"`   // of AutoRound

	// Modules that are not quantised, as each package calls them.
	Ignore      []string `json:"ignore"`
	Ignored     []string `json:"ignored_layers"`
	Excluded    []string `json:"exclude_modules"`
	Unconverted []string `json:"modules_to_not_convert"`
	Skipped     []string `json:"llm_int8_skip_modules"`
}

type algorithm struct {
	Algorithm string   `json:"quant_algo" of:"NVFP4 W4A16_NVFP4 FP8 MIXED_PRECISION"`
	_         struct{} `known:"group_size"`
}

// useWords reads what GPTQ and AWQ say.
func (c *config) useWords() error {
	c.Reordered = c.Reordered && !c.Static
	if c.Checkpoint != "" && c.Format != "" && !strings.EqualFold(c.Checkpoint, c.Format) {
		return fmt.Errorf("checkpoint_format %s, but format %s", quote(c.Checkpoint), quote(c.Format))
	}
	formats, said := []string{"gptq", "gptq_v2"}, []string{cmp.Or(c.Checkpoint, c.Format)}
	if c.method == awq {
		formats, said = []string{"gemm"}, append(said, c.Version)
	}
	for _, format := range said {
		if err := oneOf("format", cmp.Or(strings.ToLower(format), formats[0]), formats...); err != nil {
			return err
		}
	}
	c.plusOne = c.method == gptq && strings.ToLower(said[0]) != "gptq_v2"
	// The rules of GPTQModel: "-:" and an expression for modules that are not quantised,
	// "+:" or nothing and one for settings.
	return c.Dynamic.each("dynamic: ", func(m member, own settings) error {
		expr, exempt := strings.CutPrefix(m.key, "-:")
		if exempt {
			own.exempt = m.key
		}
		return c.addRule(m.key, strings.TrimPrefix(expr, "+:"), own)
	})
}

// each calls f with the settings that members are, and puts where they are before its error.
func (all members) each(where string, f func(m member, own settings) error) error {
	for _, m := range all {
		var own settings
		err := decode(m.value, &own)
		if err == nil {
			err = f(m, own)
		}
		if err != nil {
			return fmt.Errorf("%s%s: %w", where, quote(m.key), err)
		}
	}
	return nil
}

// addRule adds the settings of the modules that an expression matches.
func (c *config) addRule(key, expr string, own settings) error {
	e, err := c.compile(key, expr)
	if err == nil && e.program == nil {
		err = errPython
	}
	c.modules.rules = append(c.modules.rules, rule[settings]{e, own})
	return err
}

// useAutoRound reads what AutoRound says: weights are packed as GPTQ or AWQ packs them. A key
// of its extra_config is the name of a module; one that no module has is searched for in names.
func (c *config) useAutoRound() error {
	switch strings.TrimPrefix(c.Packing, "auto_round:") {
	case "auto_gptq", "gptq":
		c.method, c.plusOne = gptq, true
	case "auto_round", "gptqmodel":
		c.method = gptq
	case "auto_awq", "awq":
		c.method = awq
	default:
		return fmt.Errorf("packing_format %s of AutoRound is neither that of GPTQ nor of AWQ", quote(c.Packing))
	}
	c.modules.names = map[string]settings{}
	return c.Modules.each("extra_config: ", func(m member, own settings) error {
		c.modules.names[m.key] = own
		switch {
		case m.empty():
		case strings.ReplaceAll(regexp.QuoteMeta(m.key), `\.`, ".") != m.key:
			return c.addRule(m.key, "(?s:.*)(?:"+m.key+")", own)
		default:
			c.modules.rules = append(c.modules.rules, rule[settings]{&expression{text: m.key, plain: true}, own})
		}
		return nil
	})
}

// takeModules takes the modules out of a config of MLX: those that have settings of their own,
// or true or false.
func (c *config) takeModules(all members) (rest members, err error) {
	c.modules.names = map[string]settings{}
	rest = slices.DeleteFunc(slices.Clone(all), func(m member) bool { return strings.Contains("{tf", string(m.value[:1])) })
	all = slices.DeleteFunc(all, func(m member) bool { return m.value[0] != '{' })
	return rest, all.each("", func(m member, own settings) error {
		if own.Bits == 0 || own.GroupSize == nil {
			return errors.New("no bits, or no group_size") // MLX takes its own then, not those of the other modules
		}
		c.modules.names[m.key] = own
		return nil
	})
}
