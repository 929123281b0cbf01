package quant

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
)

// methods are what a quantization_config may say.
var methods = map[string]struct {
	harmless string                      // keys that change no number: how inputs, caches and kernels are used, how the quantisation was calibrated
	use      func(c *config, s *section) // takes the others; nil: the tensors say the rest
}{
	fp8:    {blockKeys, (*config).useBlock},
	mxfp8:  {blockKeys, (*config).useBlock},
	fbgemm: {"activation_scale_ub", nil},
	mxfp4:  {"dequantize", nil},
	bitsAndBytes: {`load_in_8bit load_in_4bit _load_in_8bit _load_in_4bit llm_int8_threshold llm_int8_enable_fp32_cpu_offload
		llm_int8_has_fp16_weight bnb_4bit_compute_dtype bnb_4bit_quant_type bnb_4bit_use_double_quant bnb_4bit_quant_storage`, nil},
	modelOpt:   {"config_groups group_size kv_cache_quant_algo kv_cache_scheme producer", (*config).useAlgorithms},
	compressed: {"kv_cache_scheme global_compression_ratio quantization_status version run_compressed dequantize use_optimized_inference", (*config).useGroups},
	gptq:       {harmlessWordKeys, (*config).useWords},
	awq:        {harmlessWordKeys, (*config).useWords},
	autoRound: {`autoround_version sym act_data_type act_group_size act_sym act_dynamic amp backend batch_size
		block_name_to_quantize dataset dynamic_max_gap enable_alg_ext enable_minmax_tuning enable_norm_bias_tuning enable_quanted_input
		enable_torch_compile gradient_accumulate_steps iters low_gpu_mem_usage lr minmax_lr not_use_best_mse nsamples provider
		quant_block_list quant_lm_head scale_dtype seqlen static_attention_dtype static_attention_granularity static_kv_dtype
		static_kv_granularity supported_types to_quant_block_names`, (*config).useAutoRound},
	mlx: {"", (*config).useModules},
}

// exceptions are modules that are not quantised, as each package calls them. MLX has none.
var exceptions = []string{"ignore", "ignored_layers", "exclude_modules", "modules_to_not_convert", "llm_int8_skip_modules"}

const (
	blockKeys        = "activation_scheme fmt scale_fmt expert_dtype dequantize modules_to_convert kv_cache_scheme kv_cache_quant_method packed_modules_mapping"
	settingsKeys     = "sym lm_head act_data_type act_group_size act_sym act_dynamic scale_dtype damp_percent mse in_blocks fixed_by_user" // of a module
	harmlessWordKeys = `method sym zero_point lm_head meta quantizer dataset tokenizer damp_percent damp_auto_increment true_sequential
		act_group_aware mse batch_size block_name_to_quantize module_name_preceding_first_block modules_in_block_to_quantize
		cache_block_outputs max_input_length model_seqlen pad_token_id model_name_or_path model_file_base_name backend use_exllama
		exllama_config disable_exllama use_cuda_fp16 do_fuse fuse_max_seq_len modules_to_fuse`
)

// useBlock reads what FP8 in blocks says.
func (c *config) useBlock(s *section) {
	if c.block = take[block](s, "weight_block_size"); c.block == nil && c.method == mxfp8 {
		c.block = block{1, 32}
	}
}

// useAlgorithms reads what ModelOpt says.
func (c *config) useAlgorithms(s *section) {
	known := []string{"NVFP4", "W4A16_NVFP4", "FP8", "MIXED_PRECISION"}
	s.word("quant_algo", known...)
	for _, own := range s.section("quantized_layers").sections {
		own.word("quant_algo", known...)
		own.end("group_size")
	}
}

// useWords reads what GPTQ and AWQ say.
func (c *config) useWords(s *section) {
	c.settings = s.settings()
	c.ordered = !take[bool](s, "static_groups") && c.ordered
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
	c.plusOne = format == "gptq"
	// The rules of GPTQModel: "-:" and an expression for modules that are not quantised,
	// "+:" or nothing and one for settings.
	for key, own := range s.section("dynamic").sections {
		is := c.module(own)
		expr, exempt := strings.CutPrefix(key, "-:")
		if exempt {
			is.exempt = key
		}
		c.addRule(own, key, strings.TrimPrefix(expr, "+:"), is)
	}
}

// addRule adds the settings of the modules that an expression matches.
func (c *config) addRule(s *section, key, expr string, own *settings) {
	e := c.compile(s, key, expr, own)
	if e.program == nil {
		s.check(errPython)
	}
	c.modules.rules = append(c.modules.rules, e)
}

// useAutoRound reads what AutoRound says: weights are packed as GPTQ or AWQ packs them. A key
// of its extra_config is the name of a module; one that no module has is searched for in names.
func (c *config) useAutoRound(s *section) {
	c.settings = s.settings()
	packing := take[string](s, "packing_format")
	switch strings.TrimPrefix(packing, "auto_round:") {
	case "auto_gptq", "gptq":
		c.method, c.plusOne = gptq, true
	case "auto_round", "gptqmodel":
		c.method = gptq
	case "auto_awq", "awq":
		c.method = awq
	default:
		s.fail("packing_format %s of AutoRound is neither that of GPTQ nor of AWQ", quote(packing))
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
			c.modules.rules = append(c.modules.rules, &expression{text: key, says: is, plain: true})
		}
	}
}

// useModules reads what MLX says. Modules have settings of their own, or true or false.
func (c *config) useModules(s *section) {
	s.members = slices.DeleteFunc(s.members, func(m member) bool {
		if m.value[0] == '{' {
			own := newSection(s.where+quote(m.key)+": ", m.value)
			is := c.module(own)
			if is.bits == 0 || is.groupSize == 0 {
				own.fail("no bits, or no group_size") // MLX takes its own then, not those of the other modules
			}
			c.modules.names[m.key] = is
		}
		return strings.Contains("{tf", string(m.value[:1]))
	})
	c.settings = s.settings()
}

const readers = 16 // modules that are read concurrently, for the few bytes that say how

// readMarkers reads the markers of ComfyUI, which say how their modules are quantised.
func (c *config) readMarkers(tensors map[string]safetensors.Tensor, names []string) error {
	const suffix = ".comfy_quant"
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !strings.HasSuffix(name, suffix) })
	if len(names) > 0 && c.method != "" && c.method != comfy {
		return fmt.Errorf("tensor %s: a marker of ComfyUI, though the config says quant_method %s", quote(names[0]), quote(c.named))
	}
	var mu sync.Mutex
	return parallel.Do(readers, int64(len(names)), func(i int64) (err error) {
		defer catch(&err)
		s := readSection(fmt.Sprintf("tensor %s: ", quote(names[i])), tensors[names[i]])
		mu.Lock()
		defer mu.Unlock()
		c.mark(strings.TrimSuffix(names[i], suffix), s)
		return nil
	})
}

// mark reads the marker of a module.
func (c *config) mark(module string, s *section) {
	format := take[string](s, "format")
	s.oneOf("format", format, formatsOf(comfy)...)
	s.end("full_precision_matrix_mult")
	c.method, c.named, c.markers[module] = comfy, comfy, format
}
