package quant

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// methods read the quantization_config of each method. The keys that they list change no
// number: how inputs, caches and kernels are used, how the quantisation was calibrated.
var methods = map[string]struct {
	read     func(c *config, all members, harmless string) error
	harmless string
}{
	fp8:    {(*config).parseBlocks, blockKeys},
	mxfp8:  {(*config).parseBlocks, blockKeys},
	fbgemm: {(*config).parseRest, "activation_scale_ub"},
	mxfp4:  {(*config).parseRest, "dequantize"},
	bitsAndBytes: {(*config).parseRest, `load_in_8bit load_in_4bit _load_in_8bit _load_in_4bit llm_int8_threshold llm_int8_enable_fp32_cpu_offload
		llm_int8_has_fp16_weight bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_quant_storage`},
	modelOpt:   {(*config).parseModelOpt, "config_groups group_size kv_cache_quant_algo kv_cache_scheme producer"},
	compressed: {(*config).parseGroups, "kv_cache_scheme global_compression_ratio quantization_status version run_compressed dequantize use_optimized_inference"},
	gptq:       {(*config).parseWords, wordKeys},
	awq:        {(*config).parseWords, wordKeys},
	autoRound: {(*config).parseAutoRound, `autoround_version sym act_data_type act_group_size act_sym act_dynamic amp backend batch_size
		block_name_to_quantize dataset dynamic_max_gap enable_alg_ext enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input
		enable_torch_compile gradient_accumulate_steps iters low_gpu_mem_usage lr minmax_lr not_use_best_mse nsamples provider
		quant_block_list quant_lm_head scale_dtype seqlen static_attention_dtype static_attention_granularity static_kv_dtype
		static_kv_granularity supported_types to_quant_block_names`},
	mlx: {(*config).parseMLX, ""},
}

const (
	blockKeys = "activation_scheme fmt scale_fmt expert_dtype dequantize modules_to_convert kv_cache_scheme kv_cache_quant_method packed_modules_mapping"
	wordKeys  = `method sym zero_point lm_head meta quantizer dataset tokenizer damp_percent damp_auto_increment true_sequential
		act_group_aware mse batch_size block_name_to_quantize module_name_preceding_first_block modules_in_block_to_quantize
		cache_block_outputs max_input_length model_seqlen pad_token_id model_name_or_path model_file_base_name backend use_exllama
		exllama_config disable_exllama use_cuda_fp16 do_fuse fuse_max_seq_len modules_to_fuse`
)

// exceptions are the keys of modules that are not quantised, as each package calls them.
var exceptions = []string{"ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert", "llm_int8_skip_modules"}

// decode reads a config that may have exceptions.
func (c *config) decode(all members, into any, harmless string) error {
	var not []string
	for _, m := range all {
		var more []string
		if !slices.Contains(exceptions, m.key) {
			continue
		}
		if err := unmarshal(m.value, &more); err != nil {
			return fmt.Errorf("%s: %w", m.key, err)
		}
		not = append(not, more...)
	}
	err := all.decode(into, harmless+" "+strings.Join(exceptions, " "))
	if err == nil {
		c.ignored, err = c.parsePatterns(not)
	}
	// One that only Python understands ignores nothing.
	c.ignored.rules = slices.DeleteFunc(c.ignored.rules, func(r rule[bool]) bool { return r.program == nil })
	return err
}

// parseBlocks reads the config of FP8.
func (c *config) parseBlocks(all members, harmless string) error {
	var s struct {
		Block block `json:"weight_block_size"`
	}
	if c.method == mxfp8 {
		s.Block = block{1, 32}
	}
	err := c.decode(all, &s, harmless)
	c.block = s.Block
	return err
}

// parseRest reads a config of which the tensors say all.
func (c *config) parseRest(all members, harmless string) error {
	return c.decode(all, new(struct{}), harmless)
}

// parseModelOpt checks the algorithms. The tensors say the rest.
func (c *config) parseModelOpt(all members, harmless string) error {
	type algorithm struct {
		Algorithm string   `json:"quant_algo" of:"NVFP4 W4A16_NVFP4 FP8 MIXED_PRECISION"`
		_         struct{} `known:"group_size"`
	}
	var s struct {
		algorithm
		Layers map[string]algorithm `json:"quantized_layers"`
	}
	return c.decode(all, &s, harmless)
}

// parseWords reads the config of GPTQ and AWQ.
func (c *config) parseWords(all members, harmless string) error {
	var s struct {
		settings
		Checkpoint string  `json:"checkpoint_format"`
		Format     string  `json:"format"`
		Version    string  `json:"version"`
		Word       string  `json:"pack_dtype" of:"int32"`
		Static     bool    `json:"static_groups"`
		Dynamic    members `json:"dynamic"`
	}
	if err := c.decode(all, &s, harmless); err != nil {
		return err
	}
	c.settings = s.settings
	c.Reordered = s.Reordered && !s.Static
	format, version := strings.ToLower(cmp.Or(s.Checkpoint, s.Format)), strings.ToLower(s.Version)
	c.plusOne = c.method == gptq && format != "gptq_v2"
	switch {
	case c.method == awq && format != "" && format != "gemm":
		return fmt.Errorf("version %s of AWQ is not gemm", quote(format))
	case c.method == awq && version != "" && version != "gemm":
		return fmt.Errorf("version %s of AWQ is not gemm", quote(version))
	case c.plusOne && format != "" && format != "gptq":
		return fmt.Errorf("checkpoint_format %s is neither gptq nor gptq_v2", quote(format))
	}
	// The rules of GPTQModel: "-:" and an expression for modules that are not quantised,
	// "+:" or nothing and one for settings.
	for _, m := range s.Dynamic {
		own, err := m.settings()
		expr, exempt := strings.CutPrefix(m.key, "-:")
		if exempt {
			own.exempt = m.key
		}
		if err == nil {
			err = c.addRule(m.key, strings.TrimPrefix(expr, "+:"), own)
		}
		if err != nil {
			return fmt.Errorf("dynamic: %w", err)
		}
	}
	return nil
}

// settings returns those that a member is.
func (m member) settings() (s settings, err error) {
	if err = decode(m.value, &s); err != nil {
		err = fmt.Errorf("%s: %w", quote(m.key), err)
	}
	return s, err
}

// addRule adds the settings of the modules that an expression matches.
func (c *config) addRule(key, expr string, own settings) error {
	e, err := c.compile(key, expr)
	if err == nil && e.program == nil {
		err = errPython
	}
	if err != nil {
		return fmt.Errorf("%s: %w", quote(key), err)
	}
	c.modules.rules = append(c.modules.rules, rule[settings]{e, own})
	return nil
}

// parseAutoRound reads the config of AutoRound: weights packed as GPTQ or AWQ packs them. A key
// of its extra_config is the name of a module; one that no module has is searched for in names.
func (c *config) parseAutoRound(all members, harmless string) error {
	var s struct {
		settings
		Packing string  `json:"packing_format"`
		Modules members `json:"extra_config"`
	}
	err := c.decode(all, &s, harmless)
	if err != nil {
		return fmt.Errorf("AutoRound: %w", err)
	}
	switch strings.TrimPrefix(s.Packing, "auto_round:") {
	case "auto_gptq", "gptq":
		c.method, c.plusOne = gptq, true
	case "auto_round", "gptqmodel":
		c.method = gptq
	case "auto_awq", "awq":
		c.method = awq
	default:
		return fmt.Errorf("packing_format %s of AutoRound is neither that of GPTQ nor of AWQ", quote(s.Packing))
	}
	c.settings, c.modules.names = s.settings, map[string]settings{}
	for _, m := range s.Modules {
		own, err := m.settings()
		c.modules.names[m.key] = own
		switch {
		case err != nil, m.empty():
		case strings.ReplaceAll(regexp.QuoteMeta(m.key), `\.`, ".") != m.key:
			err = c.addRule(m.key, "(?s:.*)(?:"+m.key+")", own)
		default:
			c.modules.rules = append(c.modules.rules, rule[settings]{&expression{text: m.key, plain: true}, own})
		}
		if err != nil {
			return fmt.Errorf("extra_config: %w", err)
		}
	}
	return nil
}

// parseMLX reads the config of MLX: settings, and modules with their own, or true or false.
func (c *config) parseMLX(all members, harmless string) error {
	var top members
	c.modules.names = map[string]settings{}
	for _, m := range all {
		switch string(m.value[:1]) {
		case "{":
			own, err := m.settings()
			if err != nil {
				return err
			}
			c.modules.names[m.key] = own
		case "t", "f":
		default:
			top = append(top, m)
		}
	}
	var s struct{ settings }
	err := top.decode(&s, harmless)
	c.settings = s.settings
	return err
}

// parseLayers reads the _quantization_metadata of ComfyUI.
func (c *config) parseLayers(text []byte) error {
	all, err := parseMembers(text)
	if err != nil {
		return err
	}
	c.method, c.named, c.markers = comfy, comfy, map[string]string{}
	for _, m := range all {
		if c.markers[m.key], err = parseMarker(m.value); err != nil {
			return fmt.Errorf("%s: %w", quote(m.key), err)
		}
	}
	return nil
}

// parseMarker returns the format that a marker of ComfyUI names.
func parseMarker(text []byte) (string, error) {
	var s struct {
		Format string   `json:"format"`
		_      struct{} `known:"full_precision_matrix_mult"`
	}
	if err := decode(text, &s); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(layouts, func(l layout) bool { return l.methods[0] == comfy && l.format == s.Format }) || s.Format == "" {
		return "", fmt.Errorf("format %s: %w", quote(s.Format), errors.ErrUnsupported)
	}
	return s.Format, nil
}
