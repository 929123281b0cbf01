package quant

import (
	"cmp"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// build returns the dequantised tensor. It is lazy: its elements are computed when they are read.
func (m *module) build() (t safetensors.Tensor, err error) {
	defer catch(&err)
	m.findBits()
	m.layout.lay(m)
	v := m.matrix.values
	v.packing = dequant.Packing{Bits: m.bits, Order: m.layout.order}
	if numbers := m.layout.numbers; numbers != nil { // otherwise lay has set the numbers and the shape
		v.numbers = numbers[m.bits]()
		m.shape = slices.Concat(m.outer, []int{m.matrix.lines, m.matrix.width})
	}
	m.findGrids()
	t = m.must(values)(safetensors.NewTensorAt(f32, m.shape, m.matrix))
	if len(m.shape) == 2 && m.config.byInput(m.path()) {
		t = m.must(values)(t.Transpose(1, 0))
	}
	return t, nil
}

// findBits finds the number of bits of a code. It leaves m.bits 0 if the bits follow from the
// stored shape, which layWords reads.
func (m *module) findBits() {
	l := m.layout
	m.bits = cmp.Or(l.bits, m.settings.bits)
	if m.bits == 0 && len(l.sizes) == 1 {
		m.bits = l.sizes[0]
	}
	switch {
	case l.bits != 0, m.bits == 0 && m.has(shape):
	case m.bits == 0:
		m.fail(values, "no config.json specifies how many bits its values have")
	case !slices.Contains(l.sizes, m.bits):
		m.fail(values, "codes of %d bits", m.bits)
	}
}
