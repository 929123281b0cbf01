package quant

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// A config is what config.json, hf_quant_config.json or a marker of ComfyUI says of the
// quantisation. The zero config says nothing.
type config struct {
	method string // one of methods, or comfy; "" if it says nothing
	named  string // what the config calls it
	shard  bool   // the tensors are those of one file of several

	plusOne bool // stored zero points are one less than they should be
	settings
	groups  map[string]*choice // of compressed-tensors, by format
	modules choice             // that have their own
	markers map[string]string  // of ComfyUI: the format of a module
	ignored choice             // modules that are not quantised
	heads   []int              // how many heads an attention may have
	conv1D  bool               // the model may have modules of a class that stores weights by columns

	expressions int64 // bytes of the patterns: see maxExpressions
	steps       int64 // of matches that are left: see maxSteps
}

// The methods that a config may name.
const (
	fp8          = "fp8"
	mxfp8        = "mxfp8"
	fbgemm       = "fbgemm_fp8"
	compressed   = "compressed-tensors"
	modelOpt     = "modelopt"
	mxfp4        = "mxfp4"
	gptq         = "gptq"
	awq          = "awq"
	bitsAndBytes = "bitsandbytes"
	autoRound    = "auto-round" // GPTQ or AWQ by another name
	mlx          = "mlx"
	comfy        = "comfyui"
	maxDimension = math.MaxInt32
)

const maxConfig = 4 << 20 // bytes; a few thousand are usual

// parseConfig reads the content of a config.json or a hf_quant_config.json, or the
// _quantization_metadata of ComfyUI.
func parseConfig(text []byte) (c *config, err error) {
	defer catch(&err)
	c = &config{steps: maxSteps, markers: map[string]string{}}
	c.modules, c.ignored = choice{names: map[string]*settings{}, rest: &c.settings}, choice{names: map[string]*settings{}}
	if text == nil {
		return c, nil
	}
	file := &section{where: "the config: "}
	if len(text) > maxConfig {
		file.fail("%d bytes exceed the limit of %d", len(text), maxConfig)
	}
	file.check(json.Unmarshal(finite(text), &file.members))
	section := c.find(file.members)
	for _, part := range []string{"text_config", "decoder", "generator"} { // as transformers looks for it
		text := file.get(part)
		if text == nil || text[0] != '{' && part != "text_config" {
			continue
		}
		all := newSection(file.where+part+": ", text).members
		// Elsewhere than in a text_config, quantization may be that of sounds.
		if inner := c.find(all); section == nil && (part == "text_config" || all.get("quantization_config") != nil) {
			section = inner
		}
	}
	const where = "the quantization_config: "
	switch layers := file.get("layers"); {
	case section != nil:
		c.use(newSection(where, section))
	case layers != nil && file.get("format_version") != nil: // of ComfyUI
		for module, own := range newSection(where, layers).sections {
			c.mark(module, own)
		}
	}
	return c, nil
}

// withConv1D are the models of transformers, by their model_type, with modules of its class Conv1D,
// whose weights have a row for each input. Those names are the modules'. GPTQ, AWQ and bitsandbytes
// quantise such a weight as that of a linear layer, which has a row for each output.
var (
	withConv1D  = []string{"gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp", "clvp_decoder", "clvp_encoder"}
	namesConv1D = []string{"c_attn", "q_attn", "c_fc", "c_proj"}
)

// byInput reports whether the model has a row for each input in the weight of a module.
func (c *config) byInput(module string) bool {
	name := module[strings.LastIndexByte(module, '.')+1:]
	return c.conv1D && slices.Contains([]string{gptq, awq, bitsAndBytes}, c.method) && slices.Contains(namesConv1D, name)
}

// find returns what a file, or the text_config in it, says of the quantisation.
func (c *config) find(file members) json.RawMessage {
	c.conv1D = c.conv1D || slices.Contains(withConv1D, strings.Trim(string(file.get("model_type")), `"`))
	for _, key := range []string{"num_attention_heads", "num_key_value_heads"} {
		var n int
		if json.Unmarshal(file.get(key), &n) == nil && n > 1 {
			c.heads = append(c.heads, n)
		}
	}
	var own, other, old members
	s, of := file.get("quantization_config"), file.get("quantization")
	bits := json.Unmarshal(s, &own) == nil && json.Unmarshal(of, &other) == nil && !own.has("quant_method") && other.has("bits")
	early := file.get("compression_config")
	switch {
	case s != nil && !bits:
		return s
	case s == nil && json.Unmarshal(early, &old) == nil && old.get("quant_method") != nil:
		return early // of compressed-tensors; elsewhere this speaks of something else
	}
	return of // of ModelOpt, or of MLX, which writes both, and reads this one
}

// use finds the method, and takes what it may say.
func (c *config) use(s *section) {
	switch {
	case s.get("quant_method") != nil:
		c.method = take[string](s, "quant_method")
	case s.get("quant_algo") != nil:
		c.method = modelOpt
	case s.has("quant_algo"): // ModelOpt quantised no weights
		return
	case s.get("load_in_8bit") != nil, s.get("load_in_4bit") != nil: // early versions of transformers wrote no more
		c.method = bitsAndBytes
	case s.has("bits") && s.has("group_size"):
		c.method = mlx
	}
	m, ok := methods[c.method]
	if !ok {
		s.fail("quant_method %s is none of %s", quote(c.method), strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
	}
	c.named = c.method
	if m.use != nil {
		m.use(c, s)
	}
	if c.method != mlx {
		for _, key := range exceptions {
			c.add(s, take[[]string](s, key), new(settings), &c.ignored)
		}
		// One that only Python understands ignores nothing.
		c.ignored.rules = slices.DeleteFunc(c.ignored.rules, func(e *expression) bool { return e.program == nil })
	}
	s.end(m.harmless)
}

// settings are how a module is quantised, or all are, as far as the config says it.
type settings struct {
	bits       int    // of a code; 0 if not given
	groupSize  int    // elements of a group; -1 for a single one, 0 if not given
	ordered    bool   // groups are those of an index
	asymmetric bool   // there are zero points
	strategy   string // what has a scale in compressed-tensors
	block      block  // that has one; nil if not given
	exempt     string // the key that says that modules are not quantised
}

// settings takes those of a section.
func (s *section) settings() settings {
	given := s.get("group_size") != nil
	own := settings{bits: take[int](s, "bits"), groupSize: take[int](s, "group_size"), ordered: take[bool](s, "desc_act")}
	s.word("mode", "affine")                                               // of MLX
	kind, inputs := take[string](s, "data_type"), take[int](s, "act_bits") // of AutoRound
	if g := own.groupSize; g == 0 && given || g < -1 || g > maxDimension {
		s.fail("group_size is %d", g)
	}
	if own.bits < 16 && kind != "" && kind != "int" || inputs > 0 && inputs < 16 {
		s.fail("data_type %s, act_bits %d: %w", quote(kind), inputs, errors.ErrUnsupported)
	}
	return own
}

// module takes the settings of a module, which says no more: those of all where it says nothing.
func (c *config) module(s *section) *settings {
	own := s.settings()
	s.end(settingsKeys)
	own.bits, own.groupSize = cmp.Or(own.bits, c.bits), cmp.Or(own.groupSize, c.groupSize)
	own.ordered = own.ordered || c.ordered
	return &own
}

// of returns the settings of a module, in a group of compressed-tensors whose format fits.
func (c *config) of(module, format string) (own *settings, err error) {
	defer catch(&err)
	switch own = cmp.Or(c.groups[format], &c.modules).find(module, &c.steps); {
	case own == nil:
		err = fmt.Errorf("no group of the quantization_config has format %s and targets it", format)
	case own.exempt != "":
		err = fmt.Errorf("dynamic: %s says that it is not quantised", quote(own.exempt))
	}
	return own, err
}
