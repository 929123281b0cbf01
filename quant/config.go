package quant

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
)

// A config is what config.json or hf_quant_config.json says of the quantisation. The
// zero config says nothing.
type config struct {
	method string // one of methods; "" if it says nothing
	named  string // what it calls that method

	block   []int // rows and columns of a block
	bits    int   // 0 if not given
	group   int   // elements of a group; 0 if not given, -1 for a single one
	plusOne bool  // stored zero points are one less than they should be

	targets map[string]*targets // of compressed-tensors, by format
	modules map[string]settings // of MLX and AutoRound, for modules that have their own
	left    patterns            // modules that are not quantised

	expressions int64 // bytes of the patterns: see maxExpressions
	steps       int64 // of matches that are left: see maxSteps
}

// settings are how MLX and AutoRound quantise a module.
type settings struct {
	Bits      int    `json:"bits"`
	GroupSize int    `json:"group_size"`
	Mode      string `json:"mode"`
}

// The methods that a config may name.
const (
	fp8           = "fp8"
	fbgemm        = "fbgemm_fp8"
	compressed    = "compressed-tensors"
	modelOpt      = "modelopt"
	mxfp4         = "mxfp4"
	gptq          = "gptq"
	awq           = "awq"
	bitsAndBytes  = "bitsandbytes"
	autoRound     = "auto-round" // GPTQ or AWQ by another name
	mlx           = "mlx"
	maxDimension  = math.MaxInt32
	notQuantised  = "dense"
	mixedFormats  = "mixed-precision"
	genericFormat = "naive-quantized"
)

var (
	methods = []string{fp8, fbgemm, compressed, modelOpt, mxfp4, gptq, awq, autoRound, bitsAndBytes, mlx}
	formats = []string{notQuantised, genericFormat, "float-quantized", "int-quantized", "pack-quantized",
		"nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", mixedFormats}
	algorithms = []string{"NVFP4", "W4A16_NVFP4", "FP8", "MIXED_PRECISION"}
)

// parseConfig reads the content of a config.json or a hf_quant_config.json.
func parseConfig(text []byte) (*config, error) {
	if text == nil {
		return &config{}, nil
	}
	var file sections
	text = finite(text)
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("the config: %w", err)
	}
	if absent(file.section()) && !absent(file.Text) {
		if err := json.Unmarshal(file.Text, &file); err != nil {
			return nil, fmt.Errorf("the config: text_config: %w", err)
		}
	}
	section := file.section()
	if absent(section) {
		return &config{}, nil
	}
	c, err := parseSection(section)
	if err != nil {
		return nil, fmt.Errorf("the quantization_config: %w", err)
	}
	return c, nil
}

// sections are where a file may speak of the quantisation.
type sections struct {
	Config json.RawMessage `json:"quantization_config"`
	Old    json.RawMessage `json:"compression_config"` // of early versions of compressed-tensors
	Short  json.RawMessage `json:"quantization"`       // of MLX, or of ModelOpt
	Text   json.RawMessage `json:"text_config"`
}

func (s *sections) section() json.RawMessage {
	switch {
	case !absent(s.Config):
		return s.Config
	case bytes.Contains(s.Old, []byte(`"quant_method"`)): // else it speaks of something else
		return s.Old
	}
	return s.Short
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
		Algorithm  *string           `json:"quant_algo"`
		In8        bool              `json:"load_in_8bit"`
		In4        bool              `json:"load_in_4bit"`
		Format     string            `json:"format"`
		Checkpoint string            `json:"checkpoint_format"`
		Version    string            `json:"version"`
		Bits       int               `json:"bits"`
		GroupSize  *int              `json:"group_size"`
		Block      []int             `json:"weight_block_size"`
		Mode       string            `json:"mode"`
		Groups     map[string]*group `json:"config_groups"`
		Transforms transforms        `json:"transform_config"`
		Ignore     []string          `json:"ignore"`
		Ignored    []string          `json:"ignored_layers"`
		Excluded   []string          `json:"exclude_modules"`
		Left       []string          `json:"modules_to_not_convert"`
	}
	algorithm := ""
	s.Algorithm = &algorithm        // nil after null
	err := json.Unmarshal(text, &s) // what it can read, whatever else there is
	c := &config{method: s.Method, block: s.Block, bits: s.Bits, steps: maxSteps}
	switch {
	case c.method == "" && s.Algorithm == nil: // ModelOpt quantised no weights
		return &config{}, err
	case c.method == "" && algorithm != "":
		c.method = modelOpt
	case c.method == "" && (s.In8 || s.In4): // early versions of transformers wrote no more
		c.method = bitsAndBytes
	case c.method == "" && s.Bits != 0 && s.GroupSize != nil:
		c.method = mlx
	}
	switch known := slices.Contains(methods, c.method); {
	case err != nil && (known || c.method == ""):
		return nil, err
	case !known:
		return nil, fmt.Errorf("quant_method %q is none of %s", c.method, strings.Join(methods, ", "))
	}
	c.named = c.method
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
		if algorithm != "" && !slices.Contains(algorithms, algorithm) {
			return nil, fmt.Errorf("quant_algo %q is none of %s", algorithm, strings.Join(algorithms, ", "))
		}
		// The tensors say the rest.
	case gptq:
		switch format := strings.ToLower(cmp.Or(s.Checkpoint, s.Format)); format {
		case "", "gptq":
			c.plusOne = true
		case "gptq_v2":
		default:
			return nil, fmt.Errorf("checkpoint_format %q is neither gptq nor gptq_v2", format)
		}
	case awq:
		if version := strings.ToLower(cmp.Or(s.Version, s.Format)); version != "" && version != "gemm" {
			return nil, fmt.Errorf("version %q of AWQ is not gemm", version)
		}
	case autoRound:
		return c, c.parseAutoRound(text)
	case compressed:
		if err := s.Transforms.check(); err != nil {
			return nil, err
		}
		return c, c.parseGroups(s.Groups, s.Format)
	case mlx:
		if s.Mode != "" && s.Mode != "affine" {
			return nil, fmt.Errorf("mode %q is not affine", s.Mode)
		}
		return c, c.parseModules(text)
	}
	return c, nil
}

// parseAutoRound reads the config of AutoRound: weights packed as GPTQ or AWQ packs them.
func (c *config) parseAutoRound(text []byte) error {
	var s struct {
		Packing  string              `json:"packing_format"`
		DataType string              `json:"data_type"`
		Inputs   int                 `json:"act_bits"`
		Rotation json.RawMessage     `json:"rotation_config"`
		Spin     json.RawMessage     `json:"spinquant_config"`
		Modules  map[string]settings `json:"extra_config"`
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	switch packing := strings.TrimPrefix(s.Packing, "auto_round:"); packing {
	case "auto_gptq", "gptq":
		c.method, c.plusOne = gptq, true
	case "auto_round", "gptqmodel":
		c.method = gptq
	case "auto_awq", "awq":
		c.method = awq
	default:
		return fmt.Errorf("packing_format %q of AutoRound is neither that of GPTQ nor of AWQ", s.Packing)
	}
	rotated := func(section json.RawMessage) bool { return !absent(section) && string(section) != "{}" }
	switch {
	case s.DataType != "" && s.DataType != "int" || s.Inputs > 0 && s.Inputs < 16:
		return fmt.Errorf("AutoRound with data_type %q, act_bits %d: %w", s.DataType, s.Inputs, errors.ErrUnsupported)
	case rotated(s.Rotation), rotated(s.Spin):
		return fmt.Errorf("AutoRound with weights for rotated inputs: %w", errors.ErrUnsupported)
	}
	c.modules = s.Modules
	return nil
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
