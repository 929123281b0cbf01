package quant

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// methods read the quantization_config of each method. What they list as known changes no
// number: how inputs, caches and kernels are used, how the quantisation was calibrated.
var methods = map[string]func(*config, []byte) error{
	fp8:          (*config).parseBlocks,
	mxfp8:        (*config).parseBlocks,
	fbgemm:       (*config).parseRest,
	mxfp4:        (*config).parseRest,
	bitsAndBytes: (*config).parseRest,
	modelOpt:     (*config).parseModelOpt,
	compressed:   (*config).parseGroups,
	gptq:         (*config).parseWords,
	awq:          (*config).parseWords,
	autoRound:    (*config).parseAutoRound,
	mlx:          (*config).parseMLX,
}

// exceptions are the modules that are not quantised, as each package calls them.
type exceptions struct {
	Ignore  []string `json:"ignore"`
	Ignored []string `json:"ignored_layers"`
	Exclude []string `json:"exclude_modules"`
	Not     []string `json:"modules_to_not_convert"`
	Skip    []string `json:"llm_int8_skip_modules"`
}

func (c *config) except(e exceptions) (err error) {
	c.ignored, err = c.parsePatterns(e.Ignore, e.Ignored, e.Exclude, e.Not, e.Skip)
	return err
}

// parseBlocks reads the config of FP8.
func (c *config) parseBlocks(text []byte) error {
	var s struct {
		exceptions
		Block []int `json:"weight_block_size"`
	}
	if c.method == mxfp8 {
		s.Block = []int{1, 32}
	}
	err := decode(text, &s, `quant_method activation_scheme fmt scale_fmt expert_dtype dequantize modules_to_convert
		kv_cache_scheme kv_cache_quant_method packed_modules_mapping`)
	if err != nil {
		return err
	}
	if err := checkBlock(s.Block); err != nil {
		return fmt.Errorf("weight_block_size: %w", err)
	}
	c.block = s.Block
	return c.except(s.exceptions)
}

// parseRest reads a config of which the tensors say all.
func (c *config) parseRest(text []byte) error {
	var s exceptions
	err := decode(text, &s, map[string]string{
		fbgemm: "quant_method activation_scale_ub",
		mxfp4:  "quant_method dequantize",
		bitsAndBytes: `quant_method load_in_8bit load_in_4bit _load_in_8bit _load_in_4bit llm_int8_threshold llm_int8_enable_fp32_cpu_offload
			llm_int8_has_fp16_weight bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_quant_storage`,
	}[c.method])
	if err != nil {
		return err
	}
	return c.except(s)
}

var algorithms = []string{"NVFP4", "W4A16_NVFP4", "FP8", "MIXED_PRECISION"}

// parseModelOpt checks the algorithms. The tensors say the rest.
func (c *config) parseModelOpt(text []byte) error {
	var s struct {
		exceptions
		Algorithm string `json:"quant_algo"`
		Layers    map[string]struct {
			Algorithm string `json:"quant_algo"`
		} `json:"quantized_layers"`
	}
	err := decode(text, &s, "quant_method config_groups group_size kv_cache_quant_algo kv_cache_scheme producer")
	if err != nil {
		return err
	}
	all := []string{s.Algorithm}
	for _, l := range s.Layers {
		all = append(all, l.Algorithm)
	}
	slices.Sort(all)
	for _, a := range all {
		if a != "" && !slices.Contains(algorithms, a) {
			return fmt.Errorf("quant_algo %s is none of %s", quote(a), strings.Join(algorithms, ", "))
		}
	}
	return c.except(s.exceptions)
}

// parseWords reads the config of GPTQ and AWQ.
func (c *config) parseWords(text []byte) error {
	var s struct {
		exceptions
		settings
		Checkpoint string          `json:"checkpoint_format"`
		Format     string          `json:"format"`
		Version    string          `json:"version"`
		Word       string          `json:"pack_dtype"`
		Static     bool            `json:"static_groups"`
		Dynamic    json.RawMessage `json:"dynamic"`
	}
	err := decode(text, &s, `quant_method method sym zero_point lm_head meta quantizer dataset tokenizer damp_percent damp_auto_increment
		true_sequential act_group_aware mse batch_size block_name_to_quantize module_name_preceding_first_block modules_in_block_to_quantize
		cache_block_outputs max_input_length model_seqlen pad_token_id model_name_or_path model_file_base_name backend use_exllama
		exllama_config disable_exllama use_cuda_fp16 do_fuse fuse_max_seq_len modules_to_fuse`)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return err
	}
	c.settings = s.settings
	c.Reordered = s.Reordered && !s.Static
	if s.Word != "" && s.Word != "int32" {
		return fmt.Errorf("pack_dtype %s is not int32", quote(s.Word))
	}
	format := strings.ToLower(s.Checkpoint)
	if format == "" {
		format = strings.ToLower(s.Format)
	}
	if c.method == awq {
		for _, name := range []string{format, strings.ToLower(s.Version)} {
			if name != "" && name != "gemm" {
				return fmt.Errorf("version %s of AWQ is not gemm", quote(name))
			}
		}
	} else if c.plusOne = format != "gptq_v2"; c.plusOne && format != "" && format != "gptq" {
		return fmt.Errorf("checkpoint_format %s is neither gptq nor gptq_v2", quote(format))
	}
	if err := c.parseDynamic(s.Dynamic); err != nil {
		return fmt.Errorf("dynamic: %w", err)
	}
	return c.except(s.exceptions)
}

// parseDynamic reads the rules of GPTQModel: "-:" and an expression for modules that are
// not quantised, "+:" or nothing and one for settings.
func (c *config) parseDynamic(text []byte) error {
	if (member{value: text}).empty() || text == nil {
		return nil
	}
	all, err := parseMembers(text)
	if err != nil {
		return err
	}
	for _, m := range all {
		expr, exempt := strings.CutPrefix(m.key, "-:")
		if err := c.addRule(m, strings.TrimPrefix(expr, "+:"), exempt); err != nil {
			return err
		}
	}
	return nil
}

func (c *config) addRule(m member, expr string, exempt bool) error {
	r := rule{exempt: exempt}
	err := unmarshal(m.value, &r.settings)
	if err == nil {
		r.expression, err = c.compile(m.key, expr)
	}
	if err == nil && r.program == nil {
		err = errPython
	}
	if err != nil {
		return fmt.Errorf("%s: %w", quote(m.key), err)
	}
	c.rules = append(c.rules, r)
	return nil
}

// parseAutoRound reads the config of AutoRound: weights packed as GPTQ or AWQ packs them.
func (c *config) parseAutoRound(text []byte) error {
	var s struct {
		exceptions
		settings
		Packing string          `json:"packing_format"`
		Modules json.RawMessage `json:"extra_config"`
	}
	err := decode(text, &s, `quant_method autoround_version sym act_data_type act_group_size act_sym act_dynamic amp backend batch_size
		block_name_to_quantize dataset dynamic_max_gap enable_alg_ext enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input
		enable_torch_compile gradient_accumulate_steps iters low_gpu_mem_usage lr minmax_lr not_use_best_mse nsamples provider
		quant_block_list quant_lm_head scale_dtype seqlen static_attention_dtype static_attention_granularity static_kv_dtype
		static_kv_granularity supported_types to_quant_block_names`)
	if err == nil {
		err = s.check()
	}
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
	c.settings, c.modules = s.settings, map[string]settings{}
	if s.Modules != nil && string(s.Modules) != "null" {
		all, err := parseMembers(s.Modules)
		if err != nil {
			return fmt.Errorf("extra_config: %w", err)
		}
		for _, m := range all {
			var own settings
			if strings.ReplaceAll(regexp.QuoteMeta(m.key), `\.`, ".") != m.key { // an expression, searched for
				err = c.addRule(m, "(?s:.*)(?:"+m.key+")", false)
			} else if err = unmarshal(m.value, &own); err != nil {
				err = fmt.Errorf("%s: %w", quote(m.key), err)
			}
			if err != nil {
				return fmt.Errorf("extra_config: %w", err)
			}
			c.modules[m.key] = own
		}
	}
	return c.except(s.exceptions)
}

// parseMLX reads the config of MLX: settings, and modules with their own, or true or false.
func (c *config) parseMLX(text []byte) error {
	all, err := parseMembers(text)
	if err != nil {
		return err
	}
	var top members
	c.modules = map[string]settings{}
	for _, m := range all {
		switch string(m.value[:1]) {
		case "{":
			var own settings
			if err := unmarshal(m.value, &own); err != nil {
				return fmt.Errorf("%s: %w", cut(m.key), err)
			}
			c.modules[m.key] = own
		case "t", "f":
		default:
			top = append(top, m)
		}
	}
	if err := top.decode(&c.settings, "quant_method"); err != nil {
		return err
	}
	return c.check()
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
		Format string `json:"format"`
	}
	if err := decode(text, &s, "full_precision_matrix_mult"); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(layouts, func(l layout) bool { return l.methods[0] == comfy && l.format == s.Format }) || s.Format == "" {
		return "", fmt.Errorf("format %s: %w", quote(s.Format), errors.ErrUnsupported)
	}
	return s.Format, nil
}
