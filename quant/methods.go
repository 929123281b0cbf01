package quant

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// methods maps each quant_method to the keys that its quantization_config may have.
var methods = map[string]struct {
	harmless string                      // keys that change no number, separated by spaces: they concern inputs, caches, kernels and calibration
	use      func(c *config, s *section) // takes the other keys; nil if there are none
}{
	fp8:    {blockKeys, (*config).readFP8},
	mxfp8:  {blockKeys, (*config).readFP8},
	fbgemm: {"activation_scale_ub", nil},
	mxfp4:  {"dequantize", nil},
	bitsAndBytes: {`llm_int8_threshold llm_int8_enable_fp32_cpu_offload llm_int8_has_fp16_weight
		bnb_4bit_compute_dtype bnb_4bit_quant_storage`, (*config).checkBitsAndBytes},
	modelOpt:   {"kv_cache_quant_algo kv_cache_scheme producer", (*config).checkModelOpt},
	compressed: {"kv_cache_scheme global_compression_ratio quantization_status version run_compressed dequantize use_optimized_inference", (*config).readCompressed},
	gptq:       {harmlessWordKeys, (*config).readGPTQ},
	awq:        {harmlessWordKeys, (*config).readGPTQ},
	autoRound: {`autoround_version act_data_type act_group_size act_sym act_dynamic amp backend batch_size
		block_name_to_quantize dataset dynamic_max_gap enable_alg_ext enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input
		enable_torch_compile gradient_accumulate_steps iters low_gpu_mem_usage lr minmax_lr not_use_best_mse nsamples provider
		quant_block_list quant_lm_head scale_dtype seqlen static_attention_dtype static_attention_granularity static_kv_dtype
		static_kv_granularity supported_types to_quant_block_names`, (*config).readAutoRound},
	mlx: {"", (*config).readMLX},
}

// exceptions lists the keys under which configs list the modules that are not quantised. The Python
// packages that quantise models use different keys; MLX uses none.
var exceptions = []string{"ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert", "llm_int8_skip_modules"}

const (
	blockKeys        = "activation_scheme scale_fmt dequantize modules_to_convert kv_cache_scheme kv_cache_quant_method packed_modules_mapping"
	settingsKeys     = "lm_head act_data_type act_group_size act_sym act_dynamic scale_dtype damp_percent mse in_blocks fixed_by_user" // keys in the settings of a module that do not affect the result
	harmlessWordKeys = `lm_head meta quantizer dataset tokenizer damp_percent damp_auto_increment true_sequential
		mse batch_size block_name_to_quantize module_name_preceding_first_block modules_in_block_to_quantize
		cache_block_outputs max_input_length model_seqlen pad_token_id model_name_or_path model_file_base_name backend use_exllama
		exllama_config disable_exllama use_cuda_fp16 do_fuse fuse_max_seq_len modules_to_fuse`
)

// readFP8 takes the keys of fp8 and mxfp8.
func (c *config) readFP8(s *section) {
	if c.block = take[block](s, "weight_block_size"); c.block == nil && c.method == mxfp8 {
		c.block = block{1, 32}
	}
	s.word("fmt", "e4m3", "e4m3fn", "float8_e4m3fn", "F8_E4M3")
	c.claims.experts = take[string](s, "expert_dtype")
}

// checkBitsAndBytes takes the keys of bitsandbytes, which repeat what follows from the tensors.
func (c *config) checkBitsAndBytes(s *section) {
	four, eight := false, false
	for _, prefix := range []string{"", "_"} {
		four = take[bool](s, prefix+"load_in_4bit") || four
		eight = take[bool](s, prefix+"load_in_8bit") || eight
	}
	switch {
	case four && !eight:
		c.claims.bits = 4
	case eight && !four:
		c.claims.bits = 8
	}
	c.claims.pairs = s.word("bnb_4bit_quant_type", "nf4", "fp4")
	c.claims.nested = take[*bool](s, "bnb_4bit_use_double_quant")
}

// checkModelOpt takes the keys of ModelOpt, which repeat what follows from the tensors.
func (c *config) checkModelOpt(s *section) {
	known := []string{"NVFP4", "W4A16_NVFP4", "FP8", "MXFP8", mixedPrecision}
	c.claims.algorithm = algorithm{s.word("quant_algo", append(known[:len(known):len(known)], perChannel, perBlock)...), take[int](s, "group_size")}
	switch c.claims.algorithm.name {
	case perChannel:
		c.settings.strategy = "channel"
	case perBlock:
		c.settings.strategy, c.settings.block = "block", block{128, 128}
	}
	c.claims.layers = map[string]algorithm{}
	for name, own := range s.section("quantized_layers").sections {
		c.claims.layers[name] = algorithm{own.word("quant_algo", known...), take[int](own, "group_size")}
		own.end("")
	}
	// In newer versions, config_groups repeats facts about the weights, which follow from the
	// algorithm.
	for _, group := range s.section("config_groups").sections {
		w := group.section("weights")
		bits, kind := take[int](w, "num_bits"), w.word("type", "float")
		ofBits := map[int][]string{4: {"NVFP4"}, 8: {"FP8", "MXFP8"}}[bits]
		if name := algorithms[c.claims.algorithm.name]; bits != 0 && name != "" && !slices.Contains(ofBits, name) {
			w.fail("num_bits: %d, type: %s, but quant_algo: %s", bits, kind, c.claims.algorithm.name)
		}
	}
}

// readGPTQ reads the settings of GPTQ or AWQ from s, and removes their keys from it.
func (c *config) readGPTQ(s *section) {
	c.settings = s.settings()
	c.takeSymmetry(s)
	c.ordered = !take[bool](s, "static_groups") && c.ordered
	c.unordered = !take[bool](s, "act_group_aware") && c.unordered
	s.word("method", c.method)
	s.word("pack_dtype", "int32")
	checkpoint, format, version := take[string](s, "checkpoint_format"), take[string](s, "format"), take[string](s, "version")
	if checkpoint != "" && format != "" && !strings.EqualFold(checkpoint, format) {
		s.fail("checkpoint_format %s, but format %s", quote(checkpoint), quote(format))
	}
	formats := []string{"gptq", "gptq_v2"}
	if c.method == awq {
		formats = []string{"gemm"}
		s.oneOf("format", strings.ToLower(cmp.Or(version, "gemm")), formats...)
	}
	format = strings.ToLower(cmp.Or(checkpoint, format, formats[0]))
	s.oneOf("format", format, formats...)
	c.plusOne, c.packing = format == "gptq", "checkpoint_format: "+format
	c.borrows = madeByGPTQModel(s.get("meta"))
	if c.method == awq {
		c.packing = "version: " + format
	}
	// A rule of GPTQModel is an expression with a prefix: "-:" selects modules that are not
	// quantised, "+:" or no prefix selects modules with different settings.
	for key, own := range s.section("dynamic").sections {
		is := c.module(own)
		expr, exempt := strings.CutPrefix(key, "-:")
		if exempt {
			is.exempt = key
		}
		c.addRule(own, key, strings.TrimPrefix(expr, "+:"), is)
	}
}

// madeByGPTQModel reports whether the section meta of a config names GPTQModel, with its version, as
// the program that quantised the model.
func madeByGPTQModel(meta []byte) bool {
	var written struct {
		Quantizer json.RawMessage `json:"quantizer"`
	}
	if json.Unmarshal(meta, &written) != nil {
		return false
	}
	var name string
	var names []string
	if json.Unmarshal(written.Quantizer, &name) == nil {
		names = []string{name}
	} else if json.Unmarshal(written.Quantizer, &names) != nil {
		return false
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "gptqmodel") })
}

// addRule adds settings for the modules whose names an expression matches.
func (c *config) addRule(s *section, key, expr string, own *settings) {
	e := c.compile(s, key, expr, own)
	if e.program == nil {
		s.check(errPython)
	}
	c.modules.rules = append(c.modules.rules, e)
}

// readAutoRound takes the keys of AutoRound, which packs weights like GPTQ or AWQ. A key of its
// extra_config is the name of a module. If there is no such module, the key applies to all modules
// whose names contain it.
func (c *config) readAutoRound(s *section) {
	c.settings = s.settings()
	c.takeSymmetry(s)
	packing := take[string](s, "packing_format")
	c.packing = "packing_format: " + cut(packing)
	switch strings.TrimPrefix(packing, "auto_round:") {
	case "auto_gptq", "gptq":
		c.method, c.plusOne = gptq, true
	case "auto_round", "gptqmodel":
		c.method = gptq
	case "auto_awq", "awq":
		c.method = awq
	default:
		s.fail("packing_format %s of AutoRound is neither the format of GPTQ nor the format of AWQ", quote(packing))
	}
	for key, own := range s.section("extra_config").sections {
		empty := len(own.members) == 0
		is := c.module(own)
		c.modules.names[key] = is
		switch {
		case empty:
		case strings.ReplaceAll(regexp.QuoteMeta(key), `\.`, ".") != key:
			c.addRule(own, key, "(?s:.*)(?:"+key+")", is)
		default:
			c.modules.rules = append(c.modules.rules, &expression{text: key, settings: is, plain: true})
		}
	}
}

// readMLX takes the keys of MLX. A key may be the name of a module. Its value is then an object
// with settings, or true or false.
func (c *config) readMLX(s *section) {
	s.members = slices.DeleteFunc(s.members, func(m member) bool {
		if m.value[0] == '{' {
			own := newSection(s.where+quote(m.key)+": ", m.value)
			is := c.module(own)
			if is.bits == 0 || is.groupSize == 0 {
				own.fail("no bits, or no group_size") // MLX would use its own defaults, and not the settings of the whole config
			}
			c.modules.names[m.key] = is
		}
		return strings.Contains("{tf", string(m.value[:1]))
	})
	c.settings = s.settings()
}
