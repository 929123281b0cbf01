package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// A config is the configuration of an adapter.
type config struct {
	Type         string          `json:"peft_type"`
	Alpha        *float64        `json:"lora_alpha"`
	AlphaPattern json.RawMessage `json:"alpha_pattern"` // an object that maps regular expressions for modules to numbers
	Rank         *float64        `json:"r"`
	RankPattern  json.RawMessage `json:"rank_pattern"`
	RSLoRA       bool            `json:"use_rslora"`
	FanInFanOut  bool            `json:"fan_in_fan_out"` // whether the weights of the base have the shape [in, out]
	Parameters   []string        `json:"target_parameters"`
	Tokens       tokenIndices    `json:"trainable_token_indices"`
	Saved        json.RawMessage `json:"modules_to_save"`     // a list of ends of names of modules, read by saves
	Tying        bool            `json:"ensure_weight_tying"` // whether peft also replaces the tensors that are tied to the modules to save

	alphas, ranks []modulePattern // patterns in the order of the file; the first that matches counts
}

type modulePattern struct {
	module *regexp.Regexp
	value  float64
}

func parseConfig(text []byte) (*config, error) {
	alpha := 8.0 // the default of peft
	c := config{Alpha: &alpha, AlphaPattern: json.RawMessage("{}"), RankPattern: json.RawMessage("{}")}
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	switch {
	case c.Type != "" && c.Type != "LORA":
		return nil, fmt.Errorf("peft_type is %q, not LORA", c.Type)
	case c.Alpha == nil:
		return nil, fmt.Errorf("lora_alpha is null, expected a number")
	case *c.Alpha == 0:
		return nil, fmt.Errorf("lora_alpha is 0, with which the adapter adds nothing")
	}
	if err := checkConfig(text); err != nil {
		return nil, err
	}
	var err error
	if c.alphas, err = readPatterns(c.AlphaPattern); err != nil {
		return nil, fmt.Errorf("alpha_pattern: %w", err)
	}
	if c.ranks, err = readPatterns(c.RankPattern); err != nil {
		return nil, fmt.Errorf("rank_pattern: %w", err)
	}
	if len(c.Parameters) > 0 && len(c.alphas)+len(c.ranks) > 0 { // the patterns would then match names of parameters
		return nil, errors.New("target_parameters with alpha_pattern or rank_pattern is not supported")
	}
	return &c, nil
}

// maxPatterns is the largest number of patterns, because each takes 3 kB and is tried for each
// module.
const maxPatterns = 10_000

// readPatterns reads an object that maps regular expressions to numbers, and keeps its order.
func readPatterns(text []byte) (patterns []modulePattern, err error) {
	var numbers map[string]*float64
	if err := json.Unmarshal(text, &numbers); err != nil || len(numbers) == 0 {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text)) // never fails, because text is valid JSON
	d.Token()                                   // reads the brace
	for d.More() {
		token, _ := d.Token()
		key := token.(string)
		d.Token() // reads the number
		number := numbers[key]
		if number == nil {
			return nil, fmt.Errorf("%q is null, expected a number", key)
		}
		re, err := regexp.Compile(`^(.*\.)?(` + key + `)$`)
		if err != nil {
			return nil, err
		}
		if *number == 0 {
			return nil, fmt.Errorf("%q is 0, expected another number", key)
		}
		if patterns = append(patterns, modulePattern{re, *number}); len(patterns) > maxPatterns {
			return nil, fmt.Errorf("more than %d patterns", maxPatterns)
		}
	}
	return patterns, nil
}

// knownFields are fields of the configuration that config does not read, and that do not change
// what an adapter adds. They concern training, or modules whose tensors contain the same
// information.
var knownFields = strings.Fields(`
	alpha_pattern auto_mapping base_model_name_or_path bias corda_config ensure_weight_tying eva_config
	exclude_modules fan_in_fan_out inference_mode init_lora_weights layers_pattern layers_to_transform
	loftq_config lora_alpha lora_bias lora_dropout lora_ga_config megatron_config megatron_core
	modules_to_save peft_type peft_version qalora_group_size r rank_pattern revision runtime_config
	target_modules target_parameters task_type trainable_token_indices use_rslora velora_config`)

// checkConfig returns an error for an adapter that changes, or may change, a model by more than
// B·A. peft has a field for each method that does. The field is null or false if the method is not
// used.
func checkConfig(text []byte) error {
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if v := fields[key]; v != nil && v != false && !slices.Contains(knownFields, key) {
			return fmt.Errorf("%.80s is not supported", key)
		}
	}
	switch init := fields["init_lora_weights"]; init {
	case nil, true, false, "gaussian", "eva", "orthogonal":
		return nil
	default: // PiSSA, OLoRA, CorDA and LoftQ change the weights of the base before training
		return fmt.Errorf("init_lora_weights is %.80q, which changes the base, too; let peft convert the adapter to plain LoRA", fmt.Sprint(init))
	}
}

// valueOf returns the number of the first pattern that matches a module, or the value other if none
// does.
func valueOf(patterns []modulePattern, module string, other *float64) *float64 {
	for _, p := range patterns {
		if p.module.MatchString(module) {
			return &p.value
		}
	}
	return other
}

// scale returns the factor by which an update of rank r to a module is multiplied.
func (c *config) scale(module string, r int) float32 {
	alpha := *valueOf(c.alphas, module, c.Alpha)
	if c.RSLoRA {
		return float32(alpha / math.Sqrt(float64(r)))
	}
	return float32(alpha / float64(r))
}
