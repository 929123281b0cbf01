package quant

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// A module is a quantised tensor: it has a layout, and a tensor for each of its parts.
type module struct {
	layout   *layout
	stem     string // common start of the names of its parts
	tensor   map[role]safetensors.Tensor
	config   *config
	settings *settings

	// The funcs of the layout set the following fields.
	bits   int   // number of bits of a code
	outer  []int // sizes of the dimensions before the last two: the number of matrices, or none for a single matrix
	shape  []int // shape of the result, once build has returned
	state  *section
	matrix *matrix
}

// name returns the name of the tensor that has role r. The layout must have a part with this role.
func (m *module) name(r role) string {
	i := slices.IndexFunc(m.layout.parts, func(p part) bool { return p.role == r })
	return m.stem + m.layout.parts[i].suffix
}

func (m *module) has(r role) bool { return m.tensor[r].DType() != 0 }

// result returns the name of the dequantised tensor.
func (m *module) result() string {
	if ofParameter(m.layout.parts[0].suffix) {
		return m.stem
	}
	return m.stem + "weight"
}

// path returns the name by which a config refers to m: the name of the result without ".weight", or
// the name of the parameter if the result is not the weight of a module.
func (m *module) path() string {
	return strings.TrimPrefix(strings.TrimSuffix("."+m.result(), ".weight"), ".")
}

// fail panics with a problem about the part with role r.
func (m *module) fail(r role, format string, args ...any) {
	refuse(m.name(r), "%s: %w", m.layout.name, fmt.Errorf(format, args...))
}

// check panics with a problem about the part with role r, unless err is nil.
func (m *module) check(r role, err error) {
	if err != nil {
		m.fail(r, "%w", prefix.Strip(err))
	}
}

// must returns a func that takes the results of a Tensor method on the part with role r. It panics
// with a problem if there is an error.
func (m *module) must(r role) func(safetensors.Tensor, error) safetensors.Tensor {
	return func(t safetensors.Tensor, err error) safetensors.Tensor {
		m.check(r, err)
		return t
	}
}

// flatten returns a part as a matrix with a single line. The part must have n elements.
func (m *module) flatten(r role, n int) safetensors.Tensor {
	if !m.has(r) {
		m.fail(values, "%s is missing", quote(m.name(r)))
	}
	if t := m.tensor[r]; t.Len() != n {
		m.fail(r, "%v does not have %s", t, shapetext.Count(n, "element"))
	}
	return m.reshape(r, 1, n)
}

// reshape gives a part a new shape, and returns it.
func (m *module) reshape(r role, shape ...int) safetensors.Tensor {
	m.tensor[r] = m.must(r)(m.tensor[r].Reshape(shape...))
	return m.tensor[r]
}

// readTable reads a part that consists of n numbers, such as the numbers of codes.
func (m *module) readTable(r role, n int) *dequant.Table {
	table := new(dequant.Table)
	_, err := safetensors.Append(table[:0], m.flatten(r, n))
	m.check(r, asRead(err))
	return table
}

// upright returns a part whose rows and columns are those of the result. It transposes the part if
// the layout is transposed.
func (m *module) upright(r role) safetensors.Tensor {
	t := m.tensor[r]
	if m.layout.transposed {
		return m.must(r)(t.Transpose([][]int{2: {1, 0}, 3: {0, 2, 1}}[len(t.Shape())]...))
	}
	return t
}

// sized returns the same tensor as upright, and checks that its shape is want. It may modify the
// slice want.
func (m *module) sized(r role, want ...int) safetensors.Tensor {
	if n := len(want); m.layout.transposed {
		want[n-2], want[n-1] = want[n-1], want[n-2]
	}
	m.checkShape(r, want...)
	return m.upright(r)
}

// checkShape checks that the shape of a part is want.
func (m *module) checkShape(r role, want ...int) {
	if have := m.tensor[r].Shape(); !slices.Equal(have, want) {
		m.fail(r, "its shape is %s, but %s needs %s", shapetext.Of(have), quote(m.name(values)), shapetext.Of(want))
	}
}

// checkRank checks that the rank of the values is one of ranks: 2 for one matrix, 3 for several.
func (m *module) checkRank(ranks ...int) {
	if have := m.tensor[values].Shape(); !slices.Contains(ranks, len(have)) {
		m.fail(values, "its shape %s is not that of a matrix", shapetext.Of(have))
	}
}
