package quant

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
)

// findModules returns the quantised modules in the order of their names, and the tensors that
// Dequantize returns unchanged.
func findModules(tensors map[string]safetensors.Tensor, c *config) (modules []*module, rest map[string]safetensors.Tensor, err error) {
	defer catch(&err)
	names := slices.Sorted(maps.Keys(tensors)) // sorted, so that the error is always the same
	if err := c.readMarkers(tensors, names); err != nil {
		return nil, nil, err
	}
	if c.named == autoRound { // a key that is the name of a module applies to this module only, and not to all whose names contain it
		c.modules.rules = slices.DeleteFunc(c.modules.rules, func(e *expression) bool {
			return tensors[e.text+".qweight"].DType() != 0 || tensors[e.text+".weight"].DType() != 0
		})
	}
	omitted := newLeftOut(c)
	if tensors, err = omitted.markers(tensors, names); err != nil {
		return nil, nil, err
	}
	rest = maps.Clone(tensors)
	for _, name := range names {
		var m *module
		if omitted.out(name, func() { m = findModule(tensors, name, c) }); m != nil {
			modules = append(modules, m)
			for _, p := range m.layout.parts {
				delete(rest, m.stem+p.suffix)
			}
		}
	}
	modules = accountFor(rest, names, modules, c, omitted)
	omitted.rest(rest, names)
	if len(modules) == 0 && omitted.none && c.method != "" && !(c.shard && c.allPlain(tensors)) {
		return nil, nil, fmt.Errorf("the config specifies quant_method %s, but no tensor is quantised in one of its layouts", quote(c.named))
	}
	return modules, rest, nil
}

// allPlain reports whether all tensors are floats, in dtypes in which the method does not store
// values. Then none of them can be a part of a quantised tensor whose other parts are in other
// files.
func (c *config) allPlain(tensors map[string]safetensors.Tensor) bool {
	for _, t := range tensors {
		packs := func(l *layout) bool { return slices.Contains(l.methods, c.method) && l.parts[0].has(t) }
		if !slices.Contains(isFloat, t.DType()) || slices.ContainsFunc(layouts, packs) {
			return false
		}
	}
	return true
}

// findModule returns the module whose values are in the tensor with this name. It returns nil if
// the tensor is another part of a module, or not a part of any module.
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
		case c.method == "" && l.unspecified != "" && c.quantises:
			refuse(name, quantisedAlready)
		case c.method == "" && l.unspecified != "":
			refuse(name, "no config.json specifies %s", l.unspecified)
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

// take sets the parts and the settings of the module. It panics with a problem if a part is missing
// or has a wrong dtype.
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
	m.settings, err = m.config.settingsFor(m.path(), m.layout.format)
	m.check(values, err)
	if perRow, ok := m.config.perRow[m.path()]; ok {
		own := *m.settings
		own.strategy = "tensor"
		if perRow {
			own.strategy = "channel"
		}
		m.settings = &own
	}
	m.agree()
}
