package quant

import (
	"cmp"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// perGroup has a scale for each group of adjacent columns.
func (m *module) perGroup(size int) (height, length int) {
	if size < 1 || m.matrix.width%size != 0 {
		m.fail(scales, "%d columns are not whole groups of %d", m.matrix.width, size)
	}
	return 1, size
}

// scaleRows has a scale for each row. It refuses the orders of elements that early versions of
// bitsandbytes had for some GPUs.
func scaleRows(m *module) (height, length int) {
	if m.has(order) {
		if kind := m.readTable(order, 1)[0]; kind != 0 {
			m.fail(order, "elements in order %v, not row by row (0)", kind)
		}
	}
	if t := m.tensor[scales]; len(t.Shape()) == 1 && t.Len() == m.matrix.lines {
		m.reshape(scales, t.Len(), 1)
	}
	return 1, m.matrix.width
}

// groupSize returns what the layout says, else the config.
func (m *module) groupSize() int {
	size := cmp.Or(m.layout.group, m.settings.groupSize)
	if size == 0 {
		m.fail(scales, "only a config tells the size of its groups")
	}
	return size
}

// scaleGroups has a scale for each group of adjacent columns.
func scaleGroups(m *module) (height, length int) { return m.perGroup(m.groupSize()) }

// scaleDown has a scale for each group of rows, in each column.
func scaleDown(m *module) (height, length int) { return m.layout.group, 1 }

// scaleInputs has a scale for each group of columns, of which the last may be shorter.
func scaleInputs(m *module) (height, length int) {
	m.checkRank(2)
	size := m.groupSize()
	if size == -1 {
		size = m.matrix.width
	}
	return 1, size
}

// scaleBlocked has a scale for each group of adjacent columns, in the order of cuBLAS.
func scaleBlocked(m *module) (height, length int) {
	m.perGroup(m.layout.group)
	m.checkRank(2)
	positions := m.matrix.width / m.layout.group
	down, across := cdiv(m.matrix.lines, 128), cdiv(positions, 4)
	m.checkShape(scales, 128*down, 4*across)
	// Tiles of 128 lines and 4 positions, in each of which lines 0, 32, 64 and 96 come first.
	tiles := m.reshape(scales, down, across, 32, 4, 4)
	m.tensor[scales] = m.must(scales)(tiles.Transpose(0, 3, 2, 1, 4))
	m.tensor[scales] = m.must(scales)(m.reshape(scales, 128*down, 4*across).Slice(safetensors.Span(0, m.matrix.lines), safetensors.Span(0, positions)))
	return 1, m.layout.group
}

// scaleElements has a scale for each group of adjacent elements, across rows, which may be scaled itself.
func scaleElements(m *module) (height, length int) {
	size, nested, offset := take[int](m.state, "blocksize"), take[int](m.state, "nested_blocksize"), take[*float64](m.state, "nested_offset")
	m.state = nil // modules do not keep its text
	if size < 1 || size > maxDimension {
		m.fail(state, "blocksize is %d", size)
	}
	scale := m.flatten(scales, cdiv(m.matrix.width, size))
	if scale.DType() == f32 {
		if m.has(nestedScales) || offset != nil {
			m.fail(scales, "%v, though the scales are quantised themselves", scale)
		}
		return 1, size
	}
	if nested < 1 || nested > maxDimension {
		m.fail(state, "nested_blocksize is %d", nested)
	}
	factors := m.flatten(nestedScales, cdiv(scale.Len(), nested))
	coded := &codes{stored: scale, packing: dequant.Packing{Bits: 8}, numbers: m.readTable(nestedNumbers, 256)}
	if offset == nil {
		m.fail(state, "nested_offset is missing")
	}
	x := &matrix{values: coded, height: 1, length: nested}
	x.grids[scales] = floats(factors, safetensors.Tensor{}, false)
	x.grids[biases] = func(buf []float32, _ int, lines, positions span) ([]float32, error) {
		return append(buf[:0], slices.Repeat([]float32{float32(*offset)}, lines.len()*positions.len())...), nil
	}
	m.matrix.grids[scales] = x.read
	return 1, size
}

// scaleTiles has a scale for each block: those of the config, unless the layout has its own.
// Where the config has none, a single scale is for a whole matrix, and two are for its halves,
// as of gate and up.
func scaleTiles(m *module) (height, length int) {
	have := m.tensor[scales].Shape()
	switch {
	case m.layout.group != 0:
		return m.layout.group, m.layout.group
	case m.settings.block != nil:
		return m.settings.block[0], m.settings.block[1]
	case m.tensor[scales].Len() == 1:
		return m.matrix.lines, m.matrix.width
	case m.config.method != "" && len(have) == 3 && have[2] == 1 && (have[1] == 1 || have[1] == 2 && m.matrix.lines%2 == 0):
		return m.matrix.lines / have[1], m.matrix.width
	}
	return 128, 128
}

// scaleDescribed has scales for what the config says, else for what their shape says.
func scaleDescribed(m *module) (height, length int) {
	have := m.tensor[scales].Shape()
	rank := len(have)
	w, words := m.settings, m.layout.bits == 0
	switch said := w.strategy != ""; {
	case w.strategy == "tensor", !said && m.tensor[scales].Len() == 1 && !words:
		return m.matrix.lines, m.matrix.width
	case w.strategy == "channel", !said && rank > 1 && have[rank-1] == 1 && have[rank-2] == m.matrix.lines:
		return 1, m.matrix.width
	case w.strategy == "block":
		return w.block[0], w.block[1]
	case w.strategy == "group", w.strategy == "tensor_group", !said && w.groupSize > 0:
		return m.perGroup(w.groupSize)
	case said:
		m.fail(scales, "strategy %s of weights", quote(w.strategy))
	case words && rank > 1 && have[rank-1] > 0:
		return m.perGroup(max(1, m.matrix.width/have[rank-1]))
	}
	return scaleTiles(m)
}

// findGrids finds scales, zero points and so on, and checks their shapes.
func (m *module) findGrids() {
	x := m.matrix
	height, length := m.layout.scale(m)
	x.height, x.length = max(1, height), max(1, length)
	lines, positions := cdiv(x.lines, x.height), cdiv(x.width, x.length)
	if x.grids[scales] == nil {
		x.grids[scales] = m.floats(scales, lines, positions)
	}
	if m.has(biases) {
		x.grids[biases] = m.floats(biases, lines, positions)
	}
	switch {
	case m.has(zeros):
		x.grids[zeros] = m.zeros(lines, positions)
	case m.settings.asymmetric:
		m.fail(values, "its zero points are missing, though the config says that it is not symmetric")
	}
	switch {
	case m.has(index):
		m.checkShape(index, x.width)
		t, mayBeEmpty := m.tensor[index], !m.layout.transposed
		x.index = &once[[]int32]{read: func() ([]int32, error) { return readIndex(t, positions, x.length, mayBeEmpty) }}
	case m.settings.ordered && positions > 1:
		m.fail(values, "the config says actorder or desc_act, and the index of its groups is missing")
	}
}

// floats returns a part with a number for each group, and the one that scales scales.
func (m *module) floats(r role, lines, positions int) grid {
	want := slices.Concat(m.outer, []int{lines, positions})
	if m.tensor[r].Len() == 1 && !slices.ContainsFunc(want, func(n int) bool { return n != 1 }) {
		m.reshape(r, want...)
	}
	t := m.sized(r, want...)
	if t.DType() == u8 {
		t = m.must(r)(t.Bitcast(e8m0))
	}
	for _, by := range []role{factor, divisor} {
		if m.has(by) {
			return floats(t, m.flatten(by, 1), by == divisor)
		}
	}
	return floats(t, safetensors.Tensor{}, false)
}

// wordsFor returns how many words of 32 bits hold n codes.
func wordsFor(n, bits int) int { return n/32*bits + cdiv(n%32*bits, 32) }

// zeros returns zero points: packed down the rows, or one by one.
func (m *module) zeros(lines, positions int) grid {
	if m.tensor[zeros].DType() == i8 {
		return m.floats(zeros, lines, positions)
	}
	z := *m.matrix.values
	z.stored, z.down = m.sized(zeros, wordsFor(lines, m.bits), positions), true
	if m.config.plusOne {
		z.numbers = nextNumbers[m.bits]
	}
	return (&matrix{values: &z, height: 1, length: 1}).read
}
