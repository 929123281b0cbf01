package quant

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
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

// formatsOf returns those of the layouts of a method.
func formatsOf(method string) (formats []string) {
	for _, l := range layouts {
		if l.methods[0] == method && l.format != "" {
			formats = append(formats, l.format)
		}
	}
	return formats
}

// weights are how compressed-tensors quantises some modules.
type weights struct {
	Bits      int
	Symmetric *bool
	Strategy  string
	GroupSize int
	Block     block
	Order     any
}

// weights takes those of a group, nil if it has none.
func (s *section) weights() *weights {
	if s = s.section("weights"); s.members == nil {
		return nil
	}
	w := &weights{
		Bits: take[int](s, "num_bits"), Symmetric: take[*bool](s, "symmetric"), Strategy: take[string](s, "strategy"),
		GroupSize: take[int](s, "group_size"), Block: take[block](s, "block_structure"), Order: take[any](s, "actorder"),
	}
	s.word("type", "int", "float")
	s.end("dynamic observer observer_kwargs scale_dtype zp_dtype")
	if w.Bits < 0 || w.Bits > 8 || w.GroupSize < -1 || w.GroupSize > maxDimension {
		s.fail("num_bits is %d, group_size %d", w.Bits, w.GroupSize)
	}
	if !slices.Contains([]any{nil, false, "", "weight", "static"}, w.Order) && !w.reordered() {
		s.fail("actorder %s: %w", cut(fmt.Sprint(w.Order)), errors.ErrUnsupported)
	}
	if w.Strategy == "block" && w.Block == nil || strings.HasSuffix(w.Strategy, "group") && w.GroupSize < 1 {
		s.fail("strategy %s with block_structure %v, group_size %d", cut(w.Strategy), w.Block, w.GroupSize)
	}
	return w
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
	if n := *b; err == nil && n != nil && (len(n) != 2 || min(n[0], n[1]) < 1 || max(n[0], n[1]) > maxDimension) {
		return fmt.Errorf("%s is not two positive numbers", cut(fmt.Sprint(n)))
	}
	return err
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
func (c *config) useGroups(s *section) {
	formats := formatsOf(compressed)
	known := append([]string{notQuantised, mixedFormats, genericFormat}, formats...)
	all := s.word("format", known...)
	c.groups = map[string]*targets{}
	for _, format := range formats {
		c.groups[format] = &targets{choice: choice[*weights]{names: map[string]*weights{}}}
	}
	groups := s.section("config_groups")
	slices.SortFunc(groups.members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	for _, own := range groups.sections {
		its, names, w := cmp.Or(own.word("format", known...), all), take[[]string](own, "targets"), own.weights()
		own.end("input_activations output_activations")
		rules := parsePatterns(c, own, names, w).rules
		for format, t := range c.groups {
			if w != nil && slices.Contains([]string{"", format, genericFormat, mixedFormats}, its) {
				t.add(own, names, rules, w)
			}
		}
	}
	for _, t := range c.groups {
		slices.SortFunc(t.rules, func(a, b rule[*weights]) int { return strings.Compare(a.text, b.text) })
	}
	transforms, sparsity := s.section("transform_config"), s.section("sparsity_config")
	for _, own := range transforms.section("config_groups").sections {
		own.checkTransform()
	}
	transforms.end("")
	sparsity.word("format", "dense") // how weights without zeros are stored
	sparsity.end("ignore registry_requires_subclass sparsity_structure targets global_sparsity")
}

// checkTransform refuses weights that are only right for transformed inputs or outputs: a
// transform is a rotation of weights, and of inputs and outputs as the model runs.
func (s *section) checkTransform() {
	for _, a := range take[[]struct{ Location string }](s, "apply") {
		// Those of queries and keys cancel each other out.
		if !slices.Contains([]string{"weight_input", "weight_output", "q_attn", "k_cache"}, a.Location) {
			s.fail("weights for transformed inputs or outputs: %w", errors.ErrUnsupported)
		}
	}
	s.end("type randomize requires_grad head_dim precision")
}

func (t *targets) add(s *section, names []string, rules []rule[*weights], w *weights) {
	for _, target := range names {
		if other := t.names[target]; other != nil && !reflect.DeepEqual(other, w) {
			s.fail("its target %s is that of another group, too", quote(target))
		}
		t.names[target] = w
		if t.class == nil && target != "" && unicode.IsUpper(rune(target[0])) {
			t.class = w
		}
	}
	t.rules, t.all = append(t.rules, rules...), append(t.all, w)
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
