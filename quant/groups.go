package quant

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// The formats of compressed-tensors that no layout has.
const (
	notQuantised  = "dense"
	mixedFormats  = "mixed-precision"
	genericFormat = "naive-quantized"
)

// checkFormat refuses a format that no layout of a method has, and is none of formats.
func checkFormat(format, method string, formats ...string) error {
	for _, l := range layouts {
		if l.methods[0] == method && l.format != "" {
			formats = append(formats, l.format)
		}
	}
	return oneOf("format", format, formats...)
}

// A group is how compressed-tensors quantises some modules.
type group struct {
	Format  string   `json:"format"`
	Targets []string `json:"targets"`
	Weights *weights `json:"weights"`
	_       struct{} `known:"input_activations output_activations"`
}

func (g group) check() error {
	if g.Format == "" {
		return nil
	}
	return checkFormat(g.Format, compressed, notQuantised, mixedFormats, genericFormat)
}

type weights struct {
	Bits      int      `json:"num_bits"`
	Type      string   `json:"type" of:"int float"`
	Symmetric *bool    `json:"symmetric"`
	Strategy  string   `json:"strategy"`
	GroupSize int      `json:"group_size"`
	Block     block    `json:"block_structure"`
	Order     any      `json:"actorder"`
	_         struct{} `known:"dynamic observer observer_kwargs scale_dtype zp_dtype"`
}

func (w *weights) check() error {
	if w.Bits < 0 || w.Bits > 8 || w.GroupSize < -1 || w.GroupSize > maxDimension {
		return fmt.Errorf("num_bits is %d, group_size %d", w.Bits, w.GroupSize)
	}
	if !slices.Contains([]any{nil, false, "", "weight", "static"}, w.Order) && !w.reordered() {
		return fmt.Errorf("actorder %s: %w", cut(fmt.Sprint(w.Order)), errors.ErrUnsupported)
	}
	if w.Strategy == "block" && w.Block == nil || strings.HasSuffix(w.Strategy, "group") && w.GroupSize < 1 {
		return fmt.Errorf("strategy %s with block_structure %v, group_size %d", cut(w.Strategy), w.Block, w.GroupSize)
	}
	return nil
}

// reordered reports whether groups of columns are those of an index. Elsewhere an order was for
// the calibration only.
func (w *weights) reordered() bool { return slices.Contains([]any{true, "group", "dynamic"}, w.Order) }

// A block is its rows and columns: [128,128] in JSON; early versions of compressed-tensors
// wrote "128x128".
type block []int

func (b *block) UnmarshalJSON(text []byte) error {
	if quoted := strings.Trim(string(text), `"`); len(quoted) < len(text) {
		text = []byte("[" + strings.ReplaceAll(quoted, "x", ",") + "]")
	}
	err := json.Unmarshal(text, (*[]int)(b))
	if n := *b; err == nil && (len(n) != 2 || min(n[0], n[1]) < 1 || max(n[0], n[1]) > maxDimension) {
		return fmt.Errorf("%s is not two positive numbers", cut(fmt.Sprint(n)))
	}
	return err
}

// A transform is a rotation of weights, and of inputs and outputs as the model runs.
type transform struct {
	Apply []struct {
		Location string `json:"location"`
	} `json:"apply"`
	_ struct{} `known:"type randomize requires_grad head_dim precision"`
}

// check refuses weights that are only right for transformed inputs or outputs.
func (t transform) check() error {
	for _, a := range t.Apply {
		// Those of queries and keys cancel each other out.
		if !slices.Contains([]string{"weight_input", "weight_output", "q_attn", "k_cache"}, a.Location) {
			return fmt.Errorf("weights for transformed inputs or outputs: %w", errors.ErrUnsupported)
		}
	}
	return nil
}

// Targets are those of the groups that tensors of a format may belong to.
// compressed-tensors looks for the name of a module first, then for an expression that
// matches it, in the order of their texts, then for its class.
type targets struct {
	choice[*weights]
	class *weights // of the first group with a class: files have no classes
	all   []*weights
}

// useGroups reads what compressed-tensors says. The formats of groups go before that of all.
func (c *config) useGroups() error {
	if err := (group{Format: c.Format}).check(); err != nil {
		return err
	}
	c.groups = map[string]*targets{}
	for _, l := range layouts {
		if l.methods[0] == compressed {
			c.groups[l.format] = &targets{choice: choice[*weights]{names: map[string]*weights{}}}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Groups)) {
		g := c.Groups[name]
		p, err := c.parsePatterns(g.Targets)
		for format, t := range c.groups {
			if err == nil && g.Weights != nil && slices.Contains([]string{"", format, genericFormat, mixedFormats}, cmp.Or(g.Format, c.Format)) {
				err = t.add(g, p.rules)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", cut(name), err)
		}
	}
	for _, t := range c.groups {
		slices.SortFunc(t.rules, func(a, b rule[*weights]) int { return strings.Compare(a.text, b.text) })
	}
	return nil
}

func (t *targets) add(g group, patterns []rule[bool]) error {
	for _, target := range g.Targets {
		if w := t.names[target]; w != nil && !reflect.DeepEqual(w, g.Weights) {
			return fmt.Errorf("its target %s is that of another group, too", quote(target))
		}
		t.names[target] = g.Weights
		if t.class == nil && target != "" && unicode.IsUpper(rune(target[0])) {
			t.class = g.Weights
		}
	}
	for _, r := range patterns {
		t.rules = append(t.rules, rule[*weights]{r.expression, g.Weights})
	}
	t.all = append(t.all, g.Weights)
	return nil
}

// weightsOf returns the weights of a module in a group of compressed-tensors whose format
// fits. The only group of a format needs no target.
func (c *config) weightsOf(module, format string) (weights, error) {
	t := c.groups[format]
	if len(t.all) == 1 {
		return *t.all[0], nil
	}
	w, err := t.find(module, &c.steps)
	if err != nil {
		return weights{}, err
	}
	if w = cmp.Or(w, t.class); w == nil {
		return weights{}, fmt.Errorf("no group of the quantization_config has format %s and targets it", format)
	}
	return *w, nil
}
