package quant

import (
	"fmt"
	"slices"
	"strings"
)

// agree panics with a problem if the tensors of m contradict a claim of the config.
func (m *module) agree() {
	l, claims := m.layout, m.config.claims
	conflict := func(format string, args ...any) {
		m.fail(values, "the config specifies "+format+", which its tensors contradict", args...)
	}
	switch m.config.method {
	case fp8:
		if l.bits == 4 && claims.experts != "" && !strings.EqualFold(claims.experts, "fp4") {
			conflict("expert_dtype: %s", cut(claims.experts))
		}
	case bitsAndBytes:
		switch {
		case claims.bits != 0 && claims.bits != l.bits:
			conflict("load_in_%dbit", claims.bits)
		case l.bits == 4 && claims.pairs != "" && !strings.EqualFold(claims.pairs, l.name):
			conflict("bnb_4bit_quant_type: %s", claims.pairs)
		case l.bits == 4 && claims.nested != nil && *claims.nested != m.has(nestedScales):
			conflict("bnb_4bit_use_double_quant: %v", *claims.nested)
		}
	case modelOpt:
		a, ok := claims.layers[m.path()]
		if !ok {
			a = claims.algorithm
		}
		switch want := algorithms[a.name]; {
		case want == "":
		case want != l.name:
			conflict("quant_algo: %s", a.name)
		case l.group != 0 && a.group != 0 && a.group != l.group:
			conflict("quant_algo: %s, group_size: %d", a.name, a.group)
		}
	case compressed:
		m.agreeWithGroup(conflict)
	}
}

// agreeWithGroup compares m with its group of compressed-tensors, if the format of the group is
// that of the layout. It calls conflict with a claim that differs.
func (m *module) agreeWithGroup(conflict func(format string, args ...any)) {
	l, own := m.layout, m.settings
	if own.format != l.format {
		return
	}
	ofFloats := l.numbers == &e4m3Numbers || l.numbers == &e2m1Numbers
	switch {
	case own.kind != "" && (own.kind == "float") != ofFloats:
		conflict("format: %s, type: %s", own.format, own.kind)
	case ofFloats && own.bits != 0 && own.bits != l.bits:
		conflict("format: %s, num_bits: %d", own.format, own.bits)
	case l.group != 0 && own.groupSize != 0 && own.groupSize != l.group:
		conflict("format: %s, group_size: %d", own.format, own.groupSize)
	}
}

// checkedZeros returns a grid that reads zero points, and returns an error unless they are in the
// middle of the codes, as the config specifies. stored converts a zero point to its stored number,
// for errors.
func (m *module) checkedZeros(zero grid, stored func(number float32) float32) grid {
	middle := float32(0)
	if m.layout.numbers == &unsignedNumbers {
		middle = float32(int(1) << (m.bits - 1))
	}
	where, name := m.config.packing, quote(m.name(zeros))
	if where == "" {
		where = "format: " + m.layout.format
	}
	return func(buf []float32, batch int, lines, positions span) ([]float32, error) {
		numbers, err := zero(buf, batch, lines, positions)
		if err != nil {
			return numbers, err
		}
		if i := slices.IndexFunc(numbers, func(v float32) bool { return v != middle }); i >= 0 {
			return nil, fmt.Errorf("the config specifies %s and %s, by which every stored zero point is %v, but %s has %v",
				m.settings.symmetry, where, stored(middle), name, stored(numbers[i]))
		}
		return numbers, nil
	}
}
