package quant

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/pyjson"
)

// A config is the description of a quantisation in config.json or hf_quant_config.json, or in the
// markers of ComfyUI. It must not be modified once the modules are found, except for
// patternCosts.steps.
type config struct {
	method string // key of methods, or comfy; "" if the config specifies no quantisation
	named  string // method as spelled in the config
	shard  bool   // whether the tensors are from one of several shards

	quantises bool                         // whether the config is that of Quantize, which refuses quantised tensors of all layouts
	skip      func(name string, why error) // called for each tensor that is left out; if it is nil, no tensor may be left out

	formatsOf func(method string) []string // returns the formats that a config of compressed-tensors or ComfyUI may name

	plusOne bool   // whether stored zero points are one less than their values
	borrows bool   // if plusOne is true: whether words of zero points were lowered as a whole, so that a zero point of 0 borrowed from the next
	packing string // key and value in the config that determine plusOne, for errors
	claims  claims
	settings
	groups  map[string]*choice // for compressed-tensors: settings of modules, by format
	modules choice             // for methods other than compressed-tensors: settings of modules
	markers map[string]string  // for ComfyUI: maps a module to its format
	strange map[string]error   // for ComfyUI: maps a module to the reason why its marker cannot be used
	perRow  map[string]bool    // for ComfyUI: maps a module to whether it has a scale for each row, if its marker specifies that
	ignored choice             // modules that are not quantised

	architecture
	patternCosts
}

// These are the quantisation methods: the values of quant_method in a config, and comfy for
// checkpoints of ComfyUI.
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
	autoRound    = "auto-round" // another name for GPTQ or AWQ
	mlx          = "mlx"
	comfy        = "comfyui"
)

const maxConfig = 4 << 20 // limit in bytes; a config usually has a few thousand

// readConfig parses the content of a config.json or a hf_quant_config.json, or the
// _quantization_metadata of ComfyUI. If text is nil, the config is empty. formatsOf returns the
// formats of a method.
func readConfig(text []byte, formatsOf func(method string) []string) (c *config, err error) {
	defer catch(&err)
	c = &config{formatsOf: formatsOf, patternCosts: patternCosts{steps: maxSteps}, markers: map[string]string{}, strange: map[string]error{}, perRow: map[string]bool{}}
	c.modules, c.ignored = choice{names: map[string]*settings{}, rest: &c.settings}, choice{names: map[string]*settings{}}
	if text == nil {
		return c, nil
	}
	file := &section{where: "the config: "}
	if len(text) > maxConfig {
		file.fail("%d bytes exceed the limit of %d", len(text), maxConfig)
	}
	text = pyjson.WithNulls(text)
	file.check(json.Unmarshal(text, &file.members))
	found := c.find(file, nil)
	file.check(checkMethods(text, found))
	const where = "the quantization_config: "
	switch layers := file.get("layers"); {
	case len(found) > 0:
		c.use(newSection(where, found[0].text))
	case layers != nil && file.get("format_version") != nil: // metadata of ComfyUI
		for module, own := range newSection(where, layers).sections {
			c.mark(module, own)
		}
	}
	return c, nil
}

// byInput reports whether the weight of a module has a row for each input instead of each output.
func (c *config) byInput(module string) bool {
	name := module[strings.LastIndexByte(module, '.')+1:]
	return c.conv1D && slices.Contains([]string{gptq, awq, bitsAndBytes}, c.method) && slices.Contains(namesConv1D, name)
}

// use takes the keys of the section that describes the quantisation. It determines the method
// first.
func (c *config) use(s *section) {
	switch {
	case s.get("quant_method") != nil:
		c.method = take[string](s, "quant_method")
	case s.get("quant_algo") != nil:
		c.method = modelOpt
	case s.has("quant_algo"): // its value is empty: ModelOpt quantised no weights
		return
	case s.get("load_in_8bit") != nil, s.get("load_in_4bit") != nil: // early versions of transformers wrote these keys, and no quant_method
		c.method = bitsAndBytes
	case s.has("bits") && s.has("group_size"):
		c.method = mlx
	}
	m, ok := methods[c.method]
	if !ok {
		s.fail("quant_method %s is not one of %s", quote(c.method), strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
	}
	c.named = c.method
	if m.use != nil {
		m.use(c, s)
	}
	if c.method != mlx {
		for _, key := range exceptions {
			c.add(s, take[[]string](s, key), new(settings), &c.ignored)
		}
		// An expression that only Python understands is dropped, and so ignores no module.
		c.ignored.rules = slices.DeleteFunc(c.ignored.rules, func(e *expression) bool { return e.program == nil })
	}
	s.end(m.harmless)
}

// module takes the settings of one module, and refuses other keys. For each setting that the module
// does not have, the setting of the whole config applies.
func (c *config) module(s *section) *settings {
	own := s.settings()
	if c.method != mlx {
		own.takeSymmetry(s)
	}
	s.end(settingsKeys)
	own.bits, own.groupSize = cmp.Or(own.bits, c.bits), cmp.Or(own.groupSize, c.groupSize)
	own.unordered = own.unordered || c.unordered && !own.ordered
	own.ordered = own.ordered || c.ordered
	if own.symmetry == "" {
		own.symmetric, own.symmetry = c.symmetric, c.symmetry
	}
	return &own
}

// settingsFor returns the settings of a module. With compressed-tensors, they come from a group
// with this format.
func (c *config) settingsFor(module, format string) (own *settings, err error) {
	defer catch(&err)
	switch own = cmp.Or(c.groups[format], &c.modules).find(module, &c.steps); {
	case own == nil:
		err = fmt.Errorf("no group of the quantization_config has format %s and targets it", format)
	case own.exempt != "":
		err = fmt.Errorf("by dynamic: %s it is not quantised", quote(own.exempt))
	}
	return own, err
}

// claims are keys of a config that repeat facts which follow from the tensors. No result depends on
// them; they are only compared with the tensors.
type claims struct {
	experts string // expert_dtype, the dtype in which experts are stored

	bits   int    // for bitsandbytes, 4 for load_in_4bit, 8 for load_in_8bit; 0 if neither or both are set
	pairs  string // for bitsandbytes, nf4 or fp4
	nested *bool  // for bitsandbytes, whether the scales are themselves quantised

	algorithm algorithm // for ModelOpt, the algorithm of all modules that are not in layers
	layers    map[string]algorithm
}

// An algorithm is a setting of ModelOpt for all modules or for one.
type algorithm struct {
	name  string // the claim; "" and MIXED_PRECISION claim nothing
	group int    // number of elements in a group; 0 if not given
}

// algorithms maps the algorithms of ModelOpt that this package reads to the names of their layouts.
// The value "" stands for any layout.
var algorithms = map[string]string{"NVFP4": "NVFP4", "W4A16_NVFP4": "NVFP4", "FP8": "FP8", "MXFP8": "MXFP8", perChannel: "FP8", perBlock: "FP8", mixedPrecision: ""}

const (
	perChannel     = "FP8_PER_CHANNEL_PER_TOKEN" // a scale for each row
	perBlock       = "FP8_PB_WO"                 // a scale for each block of 128×128
	mixedPrecision = "MIXED_PRECISION"
)

// ignores reports whether the config ignores a module. Either a pattern matches the module, or the
// config names a module that contains it: model.visual.proj lies in model.visual, and is ignored
// even if the config contains visual or proj alone. ignores looks only at the first few components
// of a path, because a hostile path may have many.
func (c *config) ignores(module string) bool {
	if c.ignored.find(module, &c.steps) != nil {
		return true
	}
	const most = 32
	starts := []int{0}
	for i := 0; i <= len(module) && len(starts) <= most; i++ {
		if i < len(module) && module[i] != '.' {
			continue
		}
		for _, start := range starts {
			if c.ignored.names[module[start:i]] != nil { // a substring shares the memory of module; there could be 500 copies of a name as long as a header
				return true
			}
		}
		starts = append(starts, i+1)
	}
	return false
}
