package quant

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A module is a quantised tensor: a layout, and a tensor for each of its parts.
type module struct {
	layout  *layout
	stem    string // of the names
	tensor  map[role]safetensors.Tensor
	size    []int64  // what the tensor shape holds, if it was read
	weights *weights // of compressed-tensors; nil if the config does not have it
}

// name returns the name that a part has.
func (m *module) name(r role) string {
	for _, p := range m.layout.parts {
		if p.role == r {
			return m.stem + p.suffix
		}
	}
	return m.stem
}

// failed returns an error of a part.
func (m *module) failed(r role, err error) error {
	return fmt.Errorf("tensor %s: %s: %w", quote(m.name(r)), m.layout.name, prefix.Strip(err))
}

func (m *module) errorf(r role, format string, args ...any) error {
	return m.failed(r, fmt.Errorf(format, args...))
}

// path is the name of the module in the model.
func (m *module) path() string { return strings.TrimSuffix(m.stem, ".") }

// result is the name of the tensor that the parts make.
func (m *module) result() string {
	if strings.HasPrefix(m.layout.parts[0].suffix, "_") {
		return m.stem
	}
	return m.stem + "weight"
}

// findWeights finds what a config of compressed-tensors says of the module.
func (m *module) findWeights(c *config) (err error) {
	if c.method == compressed {
		if m.weights, err = c.weightsOf(m.path(), m.layout.format); err != nil {
			return m.failed(values, err)
		}
	}
	return nil
}

// quote quotes a name for an error. A name may be as long as a header.
func quote(name string) string {
	const limit = 200
	if len(name) > limit {
		return strconv.Quote(name[:limit]) + "..."
	}
	return strconv.Quote(name)
}

// findModules returns the quantised modules in the order of their names, and the
// tensors that are none of their parts.
func findModules(tensors map[string]safetensors.Tensor, c *config) (modules []*module, rest map[string]safetensors.Tensor, err error) {
	rest = maps.Clone(tensors)
	names := slices.Sorted(maps.Keys(tensors)) // the same error each time
	for _, name := range names {
		m, err := findModule(tensors, name, c)
		if err != nil {
			return nil, nil, err
		}
		if m == nil {
			continue
		}
		modules = append(modules, m)
		for _, p := range m.layout.parts {
			delete(rest, m.stem+p.suffix)
		}
	}
	for _, name := range names {
		t, ok := rest[name]
		if !ok {
			continue
		}
		if err := checkRest(rest, name, t, c); err != nil {
			return nil, nil, err
		}
		if len(modules) > 0 && slices.ContainsFunc(also, func(s string) bool { return name == s || strings.HasSuffix(name, "."+s) }) {
			delete(rest, name)
		}
	}
	return modules, rest, nil
}

// findModule returns the module whose values are the tensor of that name, nil if it
// is no part of one, or another part.
func findModule(tensors map[string]safetensors.Tensor, name string, c *config) (*module, error) {
	var foreign *module
	t := tensors[name]
	for i := range layouts {
		l := &layouts[i]
		stem, ok := l.parts[0].stem(name)
		if !ok || !l.parts[0].has(t) || !l.parts[1].has(tensors[stem+l.parts[1].suffix]) {
			continue
		}
		m := &module{layout: l, stem: stem, tensor: map[role]safetensors.Tensor{}}
		for _, p := range l.parts {
			if t, ok := tensors[stem+p.suffix]; ok {
				m.tensor[p.role] = t
			}
		}
		if c.method != "" && !slices.Contains(l.methods, c.method) {
			foreign = m
			continue
		}
		if !m.fits(c) {
			continue
		}
		return m, m.checkParts()
	}
	if foreign != nil {
		return nil, foreign.errorf(values, "quant_method %q has no such tensors", c.method)
	}
	return nil, nil
}

// stem returns the name without the suffix of the part.
func (p part) stem(name string) (string, bool) {
	stem, ok := strings.CutSuffix(name, p.suffix)
	return stem, ok && (stem == "" || strings.HasSuffix(stem, ".") || strings.HasPrefix(p.suffix, "_"))
}

// has reports whether t can be the part. The zero Tensor cannot.
func (p part) has(t safetensors.Tensor) bool { return slices.Contains(p.dtypes, t.DType()) }

// fits reports whether the tensors can be of the layout where others have the same
// names and dtypes.
func (m *module) fits(c *config) bool {
	switch m.layout.packing {
	case pairs:
		_, ok := m.tensor[state]
		return ok
	case permuted:
		q, s := m.tensor[values].Shape(), m.tensor[scales].Shape()
		return c.method != "" || len(q) == 2 && len(s) == 2 && q[1] > 0 && s[1]/8 == q[1]
	}
	return true
}

// checkParts checks that no part is missing, or of another dtype.
func (m *module) checkParts() error {
	for _, p := range m.layout.parts {
		switch t, ok := m.tensor[p.role]; {
		case !ok && !p.optional:
			return m.errorf(values, "%s is missing", quote(m.stem+p.suffix))
		case ok && !p.has(t):
			return m.errorf(p.role, "%v, not one of %v", t, p.dtypes)
		case ok && p.role == shape && !slices.Equal(t.Shape(), []int{2}):
			return m.errorf(shape, "%v does not hold the two dimensions of a matrix", t)
		}
	}
	return nil
}

// checkRest refuses a tensor that is a part of nothing, though its name and dtype say
// that it should be one.
func checkRest(rest map[string]safetensors.Tensor, name string, t safetensors.Tensor, c *config) error {
	if strings.HasSuffix(name, "._weight_qdata") || strings.HasSuffix(name, "._weight_scale") {
		return fmt.Errorf("tensor %s: a tensor subclass of torchao: %w", quote(name), errors.ErrUnsupported)
	}
	if strings.HasSuffix(name, ".pre_quant_scale") || c.method == modelOpt && strings.HasSuffix(name, "_weight_scale") {
		return fmt.Errorf("tensor %s: smoothed weights, or joined experts, of ModelOpt: %w", quote(name), errors.ErrUnsupported)
	}
	for i := range layouts {
		for _, p := range layouts[i].parts {
			stem, ok := p.stem(name)
			if !ok || p.role == order {
				continue
			}
			switch p.suffix {
			case "weight", "scale", "scales", "biases", "_blocks", "_scales":
				// Others have such names. The config tells.
				if !slices.Contains(layouts[i].methods, c.method) || !p.has(t) {
					continue
				}
				left, err := c.left.cover(strings.TrimSuffix(stem, "."), &c.steps)
				if err != nil {
					return fmt.Errorf("tensor %s: %w", quote(name), err)
				}
				if left {
					continue
				}
			}
			return fmt.Errorf("tensor %s: %v belongs to a quantised tensor, but %s", quote(name), t, missing(&layouts[i], p, stem))
		}
	}
	for _, suffix := range []string{"_scale", "_scale_inv"} { // of joined experts, which have no suffix themselves
		if s, ok := rest[name+suffix]; ok && t.DType() == safetensors.F8_E4M3 {
			return fmt.Errorf("tensor %s: no layout has %v with scales %v under such names: %w", quote(name), t, s, errors.ErrUnsupported)
		}
	}
	return nil
}

// missing says what of a layout a part lacks.
func missing(l *layout, p part, stem string) string {
	if p.role == values {
		return "its scales, such as " + quote(stem+l.parts[1].suffix) + ", are missing"
	}
	return "there is no such tensor as " + quote(stem+l.parts[0].suffix) + fmt.Sprintf(" of dtype %v", l.parts[0].dtypes[0])
}
