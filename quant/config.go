package quant

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// A config is what config.json or hf_quant_config.json says of the quantisation. The
// zero config says nothing.
type config struct {
	method string // one of methods; "" if it says nothing

	block   []int // rows and columns of a block
	bits    int   // 0 if not given
	group   int   // elements of a group; 0 if not given, -1 for a single one
	plusOne bool  // stored zero points are one less than they should be

	groups  []*group            // of compressed-tensors
	modules map[string]settings // of MLX, for modules that have their own
	left    patterns            // modules that are not quantised

	expressions int64 // bytes of the patterns: see maxExpressions
}

// A group is how compressed-tensors quantises some modules.
type group struct {
	Format  string   `json:"format"`
	Targets []string `json:"targets"`
	Weights *weights `json:"weights"`

	targets patterns
	classes bool // a target is a class of modules
}

// settings are how MLX quantises a module.
type settings struct {
	Bits      int    `json:"bits"`
	GroupSize int    `json:"group_size"`
	Mode      string `json:"mode"`
}

type weights struct {
	Bits      int    `json:"num_bits"`
	Type      string `json:"type"`
	Symmetric *bool  `json:"symmetric"`
	Strategy  string `json:"strategy"`
	GroupSize int    `json:"group_size"`
	Block     []int  `json:"block_structure"`
}

// The methods that a config may name.
const (
	fp8           = "fp8"
	compressed    = "compressed-tensors"
	modelOpt      = "modelopt"
	mxfp4         = "mxfp4"
	gptq          = "gptq"
	awq           = "awq"
	bitsAndBytes  = "bitsandbytes"
	mlx           = "mlx"
	maxDimension  = math.MaxInt32
	notQuantised  = "dense"
	mixedFormats  = "mixed-precision"
	genericFormat = "naive-quantized"
)

var (
	methods = []string{fp8, compressed, modelOpt, mxfp4, gptq, awq, bitsAndBytes, mlx}
	formats = []string{notQuantised, genericFormat, "float-quantized", "int-quantized", "pack-quantized",
		"nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", mixedFormats}
	algorithms = []string{"NVFP4", "FP8", "MIXED_PRECISION"}
)

// parseConfig reads the content of a config.json or a hf_quant_config.json.
func parseConfig(text []byte) (*config, error) {
	if text == nil {
		return &config{}, nil
	}
	type sections struct {
		Config json.RawMessage `json:"quantization_config"`
		Short  json.RawMessage `json:"quantization"` // of MLX, or of ModelOpt
		Text   json.RawMessage `json:"text_config"`
	}
	var file sections
	text = finite(text)
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("the config: %w", err)
	}
	if absent(file.Config) && absent(file.Short) && !absent(file.Text) {
		if err := json.Unmarshal(file.Text, &file); err != nil {
			return nil, fmt.Errorf("the config: text_config: %w", err)
		}
	}
	section := file.Config
	if absent(section) {
		section = file.Short
	}
	if absent(section) {
		return &config{}, nil
	}
	c, err := parseSection(section)
	if err != nil {
		return nil, fmt.Errorf("the quantization_config: %w", err)
	}
	return c, nil
}

// notJSON matches these words, and strings.
var notJSON = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`)

// finite returns a config as JSON: Python writes NaN and infinities, such as the
// time_step_limit of Mamba layers, as words that JSON does not have. They become null.
func finite(text []byte) []byte {
	if json.Valid(text) {
		return text
	}
	return notJSON.ReplaceAllFunc(text, func(token []byte) []byte {
		if token[0] == '"' {
			return token
		}
		return []byte("null")
	})
}

func absent(section json.RawMessage) bool { return len(section) == 0 || string(section) == "null" }

func parseSection(text []byte) (*config, error) {
	var s struct {
		Method     string            `json:"quant_method"`
		Algorithm  string            `json:"quant_algo"`
		Format     string            `json:"format"`
		Checkpoint string            `json:"checkpoint_format"`
		Version    string            `json:"version"`
		Bits       int               `json:"bits"`
		GroupSize  *int              `json:"group_size"`
		Block      []int             `json:"weight_block_size"`
		Mode       string            `json:"mode"`
		Groups     map[string]*group `json:"config_groups"`
		Ignore     []string          `json:"ignore"`
		Ignored    []string          `json:"ignored_layers"`
		Excluded   []string          `json:"exclude_modules"`
		Left       []string          `json:"modules_to_not_convert"`
	}
	err := json.Unmarshal(text, &s) // what it can read, whatever else there is
	c := &config{method: s.Method, block: s.Block, bits: s.Bits}
	switch {
	case c.method == "" && s.Algorithm != "":
		c.method = modelOpt
	case c.method == "" && s.Bits != 0 && s.GroupSize != nil:
		c.method = mlx
	}
	switch known := slices.Contains(methods, c.method); {
	case err != nil && (known || c.method == ""):
		return nil, err
	case !known:
		return nil, fmt.Errorf("quant_method %q is none of %s", c.method, strings.Join(methods, ", "))
	}
	if c.left, err = c.parsePatterns(s.Ignore, s.Ignored, s.Excluded, s.Left); err != nil {
		return nil, err
	}
	if s.GroupSize != nil {
		c.group = *s.GroupSize
		if c.group == 0 || c.group < -1 || c.group > maxDimension {
			return nil, fmt.Errorf("group_size is %d", c.group)
		}
	}
	if err := checkBlock(s.Block); err != nil {
		return nil, fmt.Errorf("weight_block_size: %w", err)
	}
	switch c.method {
	case modelOpt:
		if s.Algorithm != "" && !slices.Contains(algorithms, s.Algorithm) {
			return nil, fmt.Errorf("quant_algo %q is none of %s", s.Algorithm, strings.Join(algorithms, ", "))
		}
		// The tensors say the rest.
	case gptq:
		switch s.Checkpoint {
		case "", "gptq":
			c.plusOne = true
		case "gptq_v2":
		default:
			return nil, fmt.Errorf("checkpoint_format %q is neither gptq nor gptq_v2", s.Checkpoint)
		}
	case awq:
		if v := strings.ToLower(s.Version); v != "" && v != "gemm" {
			return nil, fmt.Errorf("version %q of AWQ is not gemm", s.Version)
		}
	case compressed:
		return c, c.parseGroups(s.Groups, s.Format)
	case mlx:
		if s.Mode != "" && s.Mode != "affine" {
			return nil, fmt.Errorf("mode %q is not affine", s.Mode)
		}
		return c, c.parseModules(text)
	}
	return c, nil
}

func checkBlock(block []int) error {
	if block == nil {
		return nil
	}
	if len(block) != 2 || block[0] < 1 || block[1] < 1 || block[0] > maxDimension || block[1] > maxDimension {
		return fmt.Errorf("%v is not two positive numbers", block)
	}
	return nil
}

// parseGroups checks the groups of compressed-tensors. Their formats go before that of
// all.
func (c *config) parseGroups(groups map[string]*group, format string) (err error) {
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		if g == nil {
			continue
		}
		if g.Format == "" {
			g.Format = format
		}
		if err = checkFormat(g.Format); err == nil {
			err = g.Weights.check()
		}
		if err == nil {
			g.targets, err = c.parsePatterns(g.Targets)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		g.classes = slices.ContainsFunc(g.Targets, func(s string) bool { return s != "" && unicode.IsUpper(rune(s[0])) })
		c.groups = append(c.groups, g)
	}
	return checkFormat(format)
}

func checkFormat(format string) error {
	if format != "" && !slices.Contains(formats, format) {
		return fmt.Errorf("format %q is none of %s", format, strings.Join(formats, ", "))
	}
	return nil
}

func (w *weights) check() error {
	if w == nil {
		return nil
	}
	if err := checkBlock(w.Block); err != nil {
		return fmt.Errorf("block_structure: %w", err)
	}
	if w.Bits < 0 || w.Bits > 8 || w.GroupSize < -1 || w.GroupSize > maxDimension {
		return fmt.Errorf("num_bits is %d, group_size %d", w.Bits, w.GroupSize)
	}
	if w.Strategy == "block" && w.Block == nil || strings.HasSuffix(w.Strategy, "group") && w.GroupSize < 1 {
		return fmt.Errorf("strategy %s with block_structure %v, group_size %d", w.Strategy, w.Block, w.GroupSize)
	}
	return nil
}

// parseModules reads the modules of an MLX config that have bits of their own.
func (c *config) parseModules(text []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	c.modules = map[string]settings{}
	for name, value := range all {
		if !strings.HasPrefix(string(value), "{") {
			continue // a module may also be true or false
		}
		var s settings
		if err := json.Unmarshal(value, &s); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if s.Mode != "" && s.Mode != "affine" {
			return fmt.Errorf("%s: mode %q is not affine", name, s.Mode)
		}
		c.modules[name] = s
	}
	return nil
}

// of returns the bits of a code of a module, and the elements of a group.
func (c *config) of(module string) (bits, group int) {
	bits, group = c.bits, c.group
	if s := c.modules[module]; s.Bits != 0 {
		bits = s.Bits
	}
	if s := c.modules[module]; s.GroupSize != 0 {
		group = s.GroupSize
	}
	return bits, group
}

// weightsOf returns the weights of a module in a group of compressed-tensors whose format
// fits. A target is a pattern of modules, or a class of them, which a file does not say.
// The only group of a format needs no target.
func (c *config) weightsOf(module, format string) (*weights, error) {
	var class, only *weights
	fit := 0
	for _, g := range c.groups {
		if g.Weights == nil || g.Format == notQuantised || !slices.Contains([]string{"", format, genericFormat, mixedFormats}, g.Format) {
			continue
		}
		if g.targets.match(module) {
			return g.Weights, nil
		}
		if g.classes && class == nil {
			class = g.Weights
		}
		only = g.Weights
		fit++
	}
	switch {
	case class != nil:
		return class, nil
	case fit == 1:
		return only, nil
	}
	return nil, errors.New("no group of the quantization_config has format " + format + " and targets it")
}
