package quant

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A module is a quantised tensor: a layout, and a tensor for each of its parts.
type module struct {
	layout   *layout
	stem     string // of the names
	tensor   map[role]safetensors.Tensor
	config   *config
	settings *settings

	// What the layout finds out.
	bits   int   // of a code
	outer  []int // dimensions before those of a matrix: how many there are, or none
	shape  []int // of the result
	state  *section
	matrix *matrix
}

// name returns the name that a part has.
func (m *module) name(r role) string {
	i := slices.IndexFunc(m.layout.parts, func(p part) bool { return p.role == r })
	return m.stem + m.layout.parts[i].suffix
}

func (m *module) has(r role) bool { return m.tensor[r].DType() != 0 }

// result is the name of the tensor that the parts make.
func (m *module) result() string {
	if ofParameter(m.layout.parts[0].suffix) {
		return m.stem
	}
	return m.stem + "weight"
}

// path is the name of the module in the model, or that of a parameter of one.
func (m *module) path() string {
	return strings.TrimPrefix(strings.TrimSuffix("."+m.result(), ".weight"), ".")
}

// ofParameter reports whether a suffix follows the name of a parameter, not that of a module.
func ofParameter(suffix string) bool { return suffix == "" || suffix[0] == '_' || suffix[0] == '.' }

// findModules returns the quantised modules in the order of their names, and the
// tensors that Dequantize leaves as they are.
func findModules(tensors map[string]safetensors.Tensor, c *config) (modules []*module, rest map[string]safetensors.Tensor, err error) {
	defer catch(&err)
	names := slices.Sorted(maps.Keys(tensors)) // the same error each time
	if err := c.readMarkers(tensors, names); err != nil {
		return nil, nil, err
	}
	if c.named == autoRound { // the names of modules are no expressions
		c.modules.rules = slices.DeleteFunc(c.modules.rules, func(e *expression) bool {
			return tensors[e.text+".qweight"].DType() != 0 || tensors[e.text+".weight"].DType() != 0
		})
	}
	rest = maps.Clone(tensors)
	for _, name := range names {
		if m := findModule(tensors, name, c); m != nil {
			modules = append(modules, m)
			for _, p := range m.layout.parts {
				delete(rest, m.stem+p.suffix)
			}
		}
	}
	accountFor(rest, names, modules, c)
	if len(modules) == 0 && c.method != "" && !(c.shard && c.allPlain(tensors)) {
		return nil, nil, fmt.Errorf("the config says quant_method %s, but no tensor is quantised in a layout of it", quote(c.named))
	}
	return modules, rest, nil
}

// allPlain reports whether no tensor can be a part of something quantised, wherever its other
// parts are: all are floats, which the method quantises none to.
func (c *config) allPlain(tensors map[string]safetensors.Tensor) bool {
	for _, t := range tensors {
		packs := func(l *layout) bool { return slices.Contains(l.methods, c.method) && l.parts[0].has(t) }
		if !slices.Contains(isFloat, t.DType()) || slices.ContainsFunc(layouts, packs) {
			return false
		}
	}
	return true
}

// findModule returns the module whose values are the tensor of that name, nil if it
// is no part of one, or another part.
func findModule(tensors map[string]safetensors.Tensor, name string, c *config) *module {
	var foreign *module
	t := tensors[name]
	for _, l := range layouts {
		stem, ok := l.parts[0].stem(name)
		if !ok || !l.parts[0].has(t) || !l.parts[1].has(tensors[stem+l.parts[1].suffix]) {
			continue
		}
		m := &module{layout: l, stem: stem, tensor: map[role]safetensors.Tensor{}, config: c}
		switch {
		case l.methods[0] == comfy && l.format != c.markers[m.path()]:
		case c.method != "" && !slices.Contains(l.methods, c.method):
			foreign = m
		case c.method == "" && l.unsaid != "":
			refuse(name, "only a config tells %s", l.unsaid)
		default:
			m.take(tensors)
			return m
		}
	}
	if foreign != nil {
		foreign.fail(values, "quant_method %s has no such tensors", quote(c.named))
	}
	return nil
}

// stem returns the name without the suffix of the part.
func (p part) stem(name string) (string, bool) {
	stem, ok := strings.CutSuffix(name, p.suffix)
	return stem, ok && (stem == "" || strings.HasSuffix(stem, ".") || ofParameter(p.suffix))
}

// has reports whether t can be the part. The zero Tensor cannot.
func (p part) has(t safetensors.Tensor) bool { return slices.Contains(p.dtypes, t.DType()) }

// take takes the parts and what the config says. No part may be missing or have another dtype.
func (m *module) take(tensors map[string]safetensors.Tensor) {
	for i, p := range m.layout.parts {
		switch t, ok := tensors[m.stem+p.suffix]; {
		case !ok && (i < m.layout.need || m.layout.need == 0):
			m.fail(values, "%s is missing", quote(m.stem+p.suffix))
		case ok && !p.has(t):
			m.fail(p.role, "%v, not one of %v", t, p.dtypes)
		case ok && p.role == shape && !slices.Equal(t.Shape(), []int{2}):
			m.fail(shape, "%v does not hold the two dimensions of a matrix", t)
		case ok:
			m.tensor[p.role] = t
		}
	}
	m.matrix = &matrix{name: m.result(), values: new(codes), constant: m.layout.constant}
	var err error
	m.settings, err = m.config.of(m.path(), m.layout.format)
	m.check(values, err)
}
