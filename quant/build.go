package quant

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A problem is what ends the work on a checkpoint whose tensors do not fit: a panic, as in package
// encoding/gob.
type problem struct{ error }

// catch sets err to the problem that a func ended with.
func catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case problem:
		*err = p.error
	default:
		panic(p)
	}
}

// fail panics with a problem of a part.
func (m *module) fail(r role, format string, args ...any) {
	refuse(m.name(r), "%s: %w", m.layout.name, fmt.Errorf(format, args...))
}

// refuse panics with a problem of a tensor, which may be that of no part.
func refuse(name, format string, args ...any) {
	panic(problem{fmt.Errorf("tensor %s: %w", quote(name), fmt.Errorf(format, args...))})
}

// check fails if there is an error of a part.
func (m *module) check(r role, err error) {
	if err != nil {
		m.fail(r, "%w", prefix.Strip(err))
	}
}

// must returns what a method of a part returned, and fails if that is an error.
func (m *module) must(r role) func(safetensors.Tensor, error) safetensors.Tensor {
	return func(t safetensors.Tensor, err error) safetensors.Tensor {
		m.check(r, err)
		return t
	}
}

// build returns the tensor that the module stands for.
func (m *module) build() (t safetensors.Tensor, err error) {
	defer catch(&err)
	m.findBits()
	m.layout.lay(m)
	v := m.matrix.values
	v.packing = dequant.Packing{Bits: m.bits, Order: m.layout.order}
	if numbers := m.layout.numbers; numbers != nil { // else lay has found them, and the shape
		v.numbers = numbers[m.bits]
		m.shape = slices.Concat(m.outer, []int{m.matrix.lines, m.matrix.width})
	}
	m.findGrids()
	t = m.must(values)(safetensors.NewTensorAt(f32, m.shape, m.matrix))
	if len(m.shape) == 2 && m.config.byInput(m.path()) {
		t = m.must(values)(t.Transpose(1, 0))
	}
	return t, nil
}

// findBits finds the size of a code, unless layWords has to.
func (m *module) findBits() {
	l := m.layout
	m.bits = cmp.Or(l.bits, m.settings.bits)
	if m.bits == 0 && len(l.sizes) == 1 {
		m.bits = l.sizes[0]
	}
	switch {
	case l.bits != 0, m.bits == 0 && m.has(shape):
	case m.bits == 0:
		m.fail(values, "only a config tells the bits of its codes")
	case !slices.Contains(l.sizes, m.bits):
		m.fail(values, "codes of %d bits", m.bits)
	}
}

// flatten returns a part of n elements as a single line.
func (m *module) flatten(r role, n int) safetensors.Tensor {
	if !m.has(r) {
		m.fail(values, "%s is missing", quote(m.name(r)))
	}
	if t := m.tensor[r]; t.Len() != n {
		m.fail(r, "%v does not have %d elements", t, n)
	}
	return m.reshape(r, 1, n)
}

// reshape gives a part another shape.
func (m *module) reshape(r role, shape ...int) safetensors.Tensor {
	m.tensor[r] = m.must(r)(m.tensor[r].Reshape(shape...))
	return m.tensor[r]
}

// readTable reads n numbers, such as those of codes.
func (m *module) readTable(r role, n int) *dequant.Table {
	of := new(dequant.Table)
	_, err := safetensors.Append(of[:0], m.flatten(r, n))
	m.check(r, err)
	return of
}

// upright returns a part with the rows and columns of the result.
func (m *module) upright(r role) safetensors.Tensor {
	t := m.tensor[r]
	if m.layout.transposed {
		return m.must(r)(t.Transpose([][]int{2: {1, 0}, 3: {0, 2, 1}}[len(t.Shape())]...))
	}
	return t
}

// sized returns a part, upright, whose shape must be this one.
func (m *module) sized(r role, want ...int) safetensors.Tensor {
	if n := len(want); m.layout.transposed {
		want[n-2], want[n-1] = want[n-1], want[n-2]
	}
	m.checkShape(r, want...)
	return m.upright(r)
}

// checkShape compares the shape of a part with the one that it must have.
func (m *module) checkShape(r role, want ...int) {
	if have := m.tensor[r].Shape(); !slices.Equal(have, want) {
		m.fail(r, "its shape is %v, but %s needs %v", have, quote(m.name(values)), want)
	}
}

// checkRank refuses values that are not those of one matrix, nor of several where there may be.
func (m *module) checkRank(ranks ...int) {
	if have := m.tensor[values].Shape(); !slices.Contains(ranks, len(have)) {
		m.fail(values, "its shape is %v, not that of a matrix", have)
	}
}
