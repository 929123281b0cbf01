package quant

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
)

// A group is how compressed-tensors quantises some modules.
type group struct {
	Format  string   `json:"format"`
	Targets []string `json:"targets"`
	Weights *weights `json:"weights"`
}

func (g *group) UnmarshalJSON(text []byte) error {
	return decodePart(text, g, "input_activations output_activations")
}

type weights struct {
	Bits      int            `json:"num_bits"`
	Type      string         `json:"type"`
	Symmetric *bool          `json:"symmetric"`
	Strategy  string         `json:"strategy"`
	GroupSize int            `json:"group_size"`
	Block     blockStructure `json:"block_structure"`
	Order     any            `json:"actorder"`
}

func (w *weights) UnmarshalJSON(text []byte) error {
	return decodePart(text, w, "dynamic observer observer_kwargs scale_dtype zp_dtype")
}

// indexed reports whether the groups of columns are those of an index.
func (w *weights) indexed() bool { return w != nil && (w.Order == true || w.Order == "group") }

// A blockStructure is [128,128] in JSON; early versions wrote "128x128".
type blockStructure []int

func (b *blockStructure) UnmarshalJSON(text []byte) error {
	if quoted := strings.Trim(string(text), `"`); len(quoted) < len(text) {
		text = []byte("[" + strings.ReplaceAll(quoted, "x", ",") + "]")
	}
	return json.Unmarshal(text, (*[]int)(b))
}

// Transforms are rotations of weights, and of inputs and outputs as the model runs.
type transforms struct {
	Groups map[string]transform `json:"config_groups"`
}

type transform struct {
	Apply []struct {
		Location string `json:"location"`
	} `json:"apply"`
}

func (t *transforms) UnmarshalJSON(text []byte) error { return decodePart(text, t, "") }

func (t *transform) UnmarshalJSON(text []byte) error {
	return decodePart(text, t, "type randomize requires_grad head_dim precision")
}

// check refuses weights that are only right for transformed inputs or outputs.
func (t transforms) check() error {
	for _, g := range t.Groups {
		for _, a := range g.Apply {
			// Those of queries and keys cancel each other out.
			if !slices.Contains([]string{"weight_input", "weight_output", "q_attn", "k_cache"}, a.Location) {
				return fmt.Errorf("transform_config: weights for transformed inputs or outputs: %w", errors.ErrUnsupported)
			}
		}
	}
	return nil
}

// A sparsity says how weights without zeros are stored.
type sparsity struct {
	Format string `json:"format"`
}

func (s *sparsity) UnmarshalJSON(text []byte) error {
	return decodePart(text, s, "ignore registry_requires_subclass sparsity_structure targets global_sparsity")
}

// Targets are those of the groups that tensors of a format may belong to.
// compressed-tensors looks for the name of a module first, then for an expression that
// matches it, in the order of their texts, then for its class.
type targets struct {
	weights map[string]*weights // by target
	exprs   []*expression       // in the order of their texts
	class   *weights            // of the first group with a class: files have no classes
	only    *weights            // of the first group
	count   int                 // of groups
}

// The formats of compressed-tensors that no layout has.
const (
	notQuantised  = "dense"
	mixedFormats  = "mixed-precision"
	genericFormat = "naive-quantized"
)

var formats = []string{notQuantised, genericFormat, "float-quantized", "int-quantized", "pack-quantized",
	"nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", mixedFormats}

// parseGroups reads the config of compressed-tensors.
func (c *config) parseGroups(text []byte) error {
	var s struct {
		exceptions
		Format     string            `json:"format"`
		Groups     map[string]*group `json:"config_groups"`
		Transforms transforms        `json:"transform_config"`
		Sparsity   sparsity          `json:"sparsity_config"`
	}
	err := decode(text, &s, "quant_method kv_cache_scheme global_compression_ratio quantization_status version run_compressed dequantize use_optimized_inference")
	if err == nil {
		err = s.Transforms.check()
	}
	if err == nil && s.Sparsity.Format != "" && s.Sparsity.Format != notQuantised {
		err = fmt.Errorf("sparsity_config: format %s: %w", quote(s.Sparsity.Format), errors.ErrUnsupported)
	}
	if err == nil {
		err = c.except(s.exceptions)
	}
	if err == nil {
		err = c.addGroups(s.Groups, s.Format)
	}
	return err
}

// addGroups adds the groups. Their formats go before that of all.
func (c *config) addGroups(groups map[string]*group, format string) error {
	c.targets = map[string]*targets{}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		g := groups[name]
		if g == nil {
			continue
		}
		if g.Format == "" {
			g.Format = format
		}
		err := checkFormat(g.Format)
		if err == nil {
			err = g.Weights.check()
		}
		var p patterns
		if err == nil {
			p, err = c.parsePatterns(g.Targets)
		}
		for _, f := range formats {
			if err == nil && g.fits(f) {
				if c.targets[f] == nil {
					c.targets[f] = &targets{weights: map[string]*weights{}}
				}
				err = c.targets[f].add(g, p.exprs)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", cut(name), err)
		}
	}
	for _, t := range c.targets {
		slices.SortFunc(t.exprs, func(a, b *expression) int { return strings.Compare(a.text, b.text) })
	}
	return checkFormat(format)
}

// fits reports whether tensors of a format may belong to the group.
func (g *group) fits(format string) bool {
	return g.Weights != nil && g.Format != notQuantised && slices.Contains([]string{"", format, genericFormat, mixedFormats}, g.Format)
}

func (t *targets) add(g *group, exprs []*expression) error {
	for _, target := range g.Targets {
		if w := t.weights[target]; w != nil && !reflect.DeepEqual(w, g.Weights) {
			return fmt.Errorf("its target %s is that of another group, too", quote(target))
		}
		t.weights[target] = g.Weights
	}
	t.exprs = append(t.exprs, exprs...)
	if t.class == nil && slices.ContainsFunc(g.Targets, func(s string) bool { return s != "" && unicode.IsUpper(rune(s[0])) }) {
		t.class = g.Weights
	}
	if t.count++; t.count == 1 {
		t.only = g.Weights
	}
	return nil
}

// weightsOf returns the weights of a module in a group of compressed-tensors whose format
// fits. The only group of a format needs no target.
func (c *config) weightsOf(module, format string) (*weights, error) {
	t := c.targets[format]
	switch {
	case t == nil:
		t = &targets{}
	case t.count == 1:
		return t.only, nil
	}
	if w := t.weights[module]; w != nil {
		return w, nil
	}
	for _, e := range t.exprs {
		if e.program == nil {
			return nil, fmt.Errorf("target %s: %w", quote(e.text), errPython)
		}
		if ok, err := e.match(module, &c.steps); err != nil {
			return nil, err
		} else if ok {
			return t.weights[e.text], nil
		}
	}
	if t.class != nil {
		return t.class, nil
	}
	return nil, fmt.Errorf("no group of the quantization_config has format %s and targets it", format)
}

func checkFormat(format string) error {
	if format != "" && !slices.Contains(formats, format) {
		return fmt.Errorf("format %s is none of %s", quote(format), strings.Join(formats, ", "))
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
		return fmt.Errorf("strategy %s with block_structure %v, group_size %d", cut(w.Strategy), w.Block, w.GroupSize)
	}
	return nil
}
