package quant

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
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

// weights takes the settings of a group of compressed-tensors, nil if it has none.
func (s *section) weights() *settings {
	if s = s.section("weights"); s.members == nil {
		return nil
	}
	symmetric, order := take[*bool](s, "symmetric"), take[any](s, "actorder")
	w := &settings{
		bits: take[int](s, "num_bits"), groupSize: take[int](s, "group_size"),
		strategy: take[string](s, "strategy"), block: take[block](s, "block_structure"),
		asymmetric: symmetric != nil && !*symmetric, ordered: slices.Contains([]any{true, "group", "dynamic"}, order),
	}
	s.word("type", "int", "float")
	s.end("dynamic observer observer_kwargs scale_dtype zp_dtype")
	if w.bits < 0 || w.bits > 8 || w.groupSize < -1 || w.groupSize > maxDimension {
		s.fail("num_bits is %d, group_size %d", w.bits, w.groupSize)
	}
	if !w.ordered && !slices.Contains([]any{nil, false, "", "weight", "static"}, order) { // for the calibration only
		s.fail("actorder %s: %w", cut(fmt.Sprint(order)), errors.ErrUnsupported)
	}
	if w.strategy == "block" && w.block == nil || strings.HasSuffix(w.strategy, "group") && w.groupSize < 1 {
		s.fail("strategy %s with block_structure %v, group_size %d", cut(w.strategy), w.block, w.groupSize)
	}
	return w
}

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

// useGroups reads what compressed-tensors says. The formats of groups go before that of all.
// The only group of a format needs no target. Else compressed-tensors looks for the name of a
// module first, then for an expression that matches it, in the order of their texts, then for
// its class: files have no classes, so that the first group with one has the others.
func (c *config) useGroups(s *section) {
	formats := formatsOf(compressed)
	several := []string{"mixed-precision", "naive-quantized"} // the tensors tell which
	known := slices.Concat([]string{"dense"}, several, formats)
	all := s.word("format", known...)
	c.groups = map[string]*choice{}
	for _, format := range formats {
		c.groups[format] = &choice{names: map[string]*settings{}}
	}
	of := map[*choice][]*settings{}
	isClass := func(target string) bool { return target != "" && unicode.IsUpper(rune(target[0])) }
	groups := s.section("config_groups")
	slices.SortFunc(groups.members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	for _, own := range groups.sections {
		its, names, w := cmp.Or(own.word("format", known...), all), take[[]string](own, "targets"), own.weights()
		own.end("input_activations output_activations")
		var fitting []*choice
		for format, t := range c.groups {
			if w != nil && (its == "" || its == format || slices.Contains(several, its)) {
				fitting, of[t] = append(fitting, t), append(of[t], w)
				if t.rest == nil && slices.ContainsFunc(names, isClass) {
					t.rest = w
				}
			}
		}
		c.add(own, names, w, fitting...)
	}
	for _, t := range c.groups {
		slices.SortFunc(t.rules, func(a, b *expression) int { return strings.Compare(a.text, b.text) })
		if len(of[t]) == 1 {
			*t = choice{rest: of[t][0]}
		}
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
