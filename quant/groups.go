package quant

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"unicode"
)

// readCompressed takes the keys of compressed-tensors. The format of a group overrides the format
// of the whole config. If only one group has a format, its targets do not matter. Otherwise
// compressed-tensors looks for the name of a module among the targets, then for an expression that
// matches the name, in the alphabetical order of the expressions, then for the class of the module.
// Files do not record classes, so a module that nothing else matches belongs to the first group
// that targets a class.
func (c *config) readCompressed(s *section) {
	formats := c.formatsOf(compressed)
	several := []string{"mixed-precision", "naive-quantized"} // each module may have a format of its own, which its tensors determine
	known := slices.Concat([]string{"dense"}, several, formats)
	all := s.word("format", known...)
	c.groups = map[string]*choice{}
	for _, format := range formats {
		c.groups[format] = &choice{names: map[string]*settings{}}
	}
	settingsIn := map[*choice][]*settings{}
	isClass := func(target string) bool { return target != "" && unicode.IsUpper(rune(target[0])) }
	groups := s.section("config_groups")
	slices.SortFunc(groups.members, func(a, b member) int { return strings.Compare(a.key, b.key) })
	for _, group := range groups.sections {
		named, targets, weights := cmp.Or(group.word("format", known...), all), take[[]string](group, "targets"), group.weights()
		group.end("input_activations output_activations")
		if weights != nil && slices.Contains(formats, named) {
			weights.format = named
		}
		var fitting []*choice
		for format, t := range c.groups {
			if weights != nil && (named == "" || named == format || slices.Contains(several, named)) {
				fitting, settingsIn[t] = append(fitting, t), append(settingsIn[t], weights)
				if t.rest == nil && slices.ContainsFunc(targets, isClass) {
					t.rest = weights
				}
			}
		}
		c.add(group, targets, weights, fitting...)
	}
	for _, t := range c.groups {
		slices.SortFunc(t.rules, func(a, b *expression) int { return strings.Compare(a.text, b.text) })
		if len(settingsIn[t]) == 1 {
			*t = choice{rest: settingsIn[t][0]}
		}
	}
	transforms, sparsity := s.section("transform_config"), s.section("sparsity_config")
	for _, own := range transforms.section("config_groups").sections {
		own.checkTransform()
	}
	transforms.end("")
	sparsity.word("format", "dense") // all other formats store sparse weights
	sparsity.end("ignore registry_requires_subclass sparsity_structure targets global_sparsity")
}

// checkTransform refuses a transform that makes the weights right only for a model that also
// transforms its inputs or outputs while it runs.
func (s *section) checkTransform() {
	for _, a := range take[[]struct{ Location string }](s, "apply") {
		// The transforms of queries and keys cancel each other out.
		if !slices.Contains([]string{"weight_input", "weight_output", "q_attn", "k_cache"}, a.Location) {
			s.fail("weights for transformed inputs or outputs: %w", errors.ErrUnsupported)
		}
	}
	s.end("type randomize requires_grad head_dim precision")
}
