package quant

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// perGroup checks that the number of columns is a multiple of size, the number of adjacent columns
// in a group. It returns how many rows and columns share a scale.
func (m *module) perGroup(size int) (height, length int) {
	if size < 1 || m.matrix.width%size != 0 {
		m.fail(scales, "%d columns are not whole groups of %d", m.matrix.width, size)
	}
	return 1, size
}

// scaleRows reads scales that each apply to a row. It refuses the orders of elements that early
// versions of bitsandbytes used for some GPUs.
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

// groupSize returns the group size of the layout, or else that of the config.
func (m *module) groupSize() int {
	size := cmp.Or(m.layout.group, m.settings.groupSize)
	if size == 0 {
		m.fail(scales, "no config.json specifies the size of its groups")
	}
	return size
}

// scaleGroups reads scales that each apply to a group of adjacent columns.
func scaleGroups(m *module) (height, length int) { return m.perGroup(m.groupSize()) }

// scaleDown reads scales that each apply to a group of adjacent rows in one column.
func scaleDown(m *module) (height, length int) { return m.layout.group, 1 }

// scaleInputs reads scales that each apply to a group of columns. The last group may be shorter.
func scaleInputs(m *module) (height, length int) {
	m.checkRank(2)
	size := m.groupSize()
	if size == -1 {
		size = m.matrix.width
	}
	return 1, size
}

// scaleBlocked reads scales that each apply to a group of adjacent columns, and are stored in the
// order of cuBLAS.
func scaleBlocked(m *module) (height, length int) {
	m.perGroup(m.layout.group)
	m.checkRank(2)
	positions := m.matrix.width / m.layout.group
	down, across := cdiv(m.matrix.lines, 128), cdiv(positions, 4)
	m.checkShape(scales, 128*down, 4*across)
	// The scales are stored in tiles of 128 lines and 4 positions. In each tile, lines 0, 32, 64
	// and 96 come first.
	tiles := m.reshape(scales, down, across, 32, 4, 4)
	m.tensor[scales] = m.must(scales)(tiles.Transpose(0, 3, 2, 1, 4))
	m.tensor[scales] = m.must(scales)(m.reshape(scales, 128*down, 4*across).Slice(safetensors.Span(0, m.matrix.lines), safetensors.Span(0, positions)))
	return 1, m.layout.group
}

// scaleElements reads scales that each apply to a group of adjacent elements. Groups continue
// across rows, and their scales may themselves be quantised.
func scaleElements(m *module) (height, length int) {
	size, nested, offset := take[int](m.state, "blocksize"), take[int](m.state, "nested_blocksize"), take[*float64](m.state, "nested_offset")
	m.state = nil // lets the collector free the text of the JSON
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
	x.grids[scales] = floatGrid(factors, safetensors.Tensor{}, false)
	x.grids[biases] = func(buf []float32, _ int, lines, positions span) ([]float32, error) {
		return append(buf[:0], slices.Repeat([]float32{float32(*offset)}, lines.len()*positions.len())...), nil
	}
	m.matrix.grids[scales] = x.read
	return 1, size
}

// scaleTiles reads scales that each apply to a block. The size of blocks is that of the layout, or
// else that of the config. If neither has one, a single scale applies to a whole matrix, two scales
// apply to its halves, such as gate and up, and more scales apply to blocks of 128×128.
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

// scaleDescribed reads scales as the strategy of the config describes them. Without a strategy, the
// shape of the scales decides.
func scaleDescribed(m *module) (height, length int) {
	have := m.tensor[scales].Shape()
	rank := len(have)
	w, words := m.settings, m.layout.bits == 0
	switch given := w.strategy != ""; {
	case w.strategy == "tensor", !given && m.tensor[scales].Len() == 1 && !words:
		return m.matrix.lines, m.matrix.width
	case w.strategy == "channel", !given && rank > 1 && have[rank-1] == 1 && have[rank-2] == m.matrix.lines:
		return 1, m.matrix.width
	case w.strategy == "block":
		return w.block[0], w.block[1]
	case w.strategy == "group", w.strategy == "tensor_group", !given && w.groupSize > 0:
		return m.perGroup(w.groupSize)
	case given:
		m.fail(scales, "strategy %s of weights", quote(w.strategy))
	case words && rank > 1 && have[rank-1] > 0:
		return m.perGroup(max(1, m.matrix.width/have[rank-1]))
	}
	return scaleTiles(m)
}

// findGrids sets the grids of scales, zero points and biases, and checks their shapes.
func (m *module) findGrids() {
	x := m.matrix
	height, length := m.layout.scale(m)
	x.height, x.length = max(1, height), max(1, length)
	lines, positions := cdiv(x.lines, x.height), cdiv(x.width, x.length)
	if x.grids[scales] == nil {
		x.grids[scales] = m.partGrid(scales, lines, positions)
	}
	if m.has(biases) {
		x.grids[biases] = m.partGrid(biases, lines, positions)
	}
	switch {
	case m.has(zeros):
		x.grids[zeros] = m.zeros(lines, positions)
	case m.settings.asymmetric:
		m.fail(values, "its zero points are missing, though the config specifies symmetric: false")
	}
	switch {
	case m.has(index):
		m.checkShape(index, x.width)
		t, mayBeEmpty := m.tensor[index], !m.layout.transposed
		unordered, name := m.settings.unordered, m.name(index)
		x.index = &once[[]int32]{read: func() ([]int32, error) {
			number, err := readIndex(t, positions, x.length, mayBeEmpty)
			if err == nil && number != nil && unordered {
				return nil, fmt.Errorf("the config specifies desc_act: false, but the groups of %s are not adjacent", quote(name))
			}
			return number, err
		}}
	case m.settings.ordered && positions > 1:
		m.fail(values, "the config specifies actorder or desc_act, and the index of its groups is missing")
	}
}

// partGrid returns the grid of a part that has a number for each group. If there is a global factor
// or divisor, it scales these numbers.
func (m *module) partGrid(r role, lines, positions int) grid {
	want := slices.Concat(m.outer, []int{lines, positions})
	if m.tensor[r].Len() == 1 && !slices.ContainsFunc(want, func(n int) bool { return n != 1 }) {
		m.reshape(r, want...)
	}
	if have := m.tensor[r].Shape(); m.config.method == modelOpt && len(m.outer) == 0 &&
		(positions == 1 && slices.Equal(have, []int{lines}) || slices.Equal(have, []int{lines, 1, positions, 1})) {
		m.reshape(r, want...) // ModelOpt stores the scales of rows in one dimension, and those of blocks in four
	}
	t := m.sized(r, want...)
	if t.DType() == u8 {
		t = m.must(r)(t.Bitcast(e8m0))
	}
	for _, by := range []role{factor, divisor} {
		if m.has(by) {
			return floatGrid(t, m.flatten(by, 1), by == divisor)
		}
	}
	return floatGrid(t, safetensors.Tensor{}, false)
}

// zeros returns the grid of zero points. They are packed down each column, or stored one by one.
func (m *module) zeros(lines, positions int) grid {
	stored := func(number float32) float32 { return number }
	var all grid
	if m.tensor[zeros].DType() == i8 {
		all = m.partGrid(zeros, lines, positions)
	} else {
		z := *m.matrix.values
		z.stored, z.down = m.sized(zeros, wordsFor(lines, m.bits), positions), true
		if m.config.plusOne {
			if m.config.borrows && 32%m.bits == 0 { // with 3 bits, GPTQModel lowers each zero point on its own
				z.add = math.MaxUint32 / (1<<m.bits - 1)
			} else {
				z.numbers = nextNumbers[m.bits]()
			}
			stored = func(number float32) float32 { return float32((int(number) - 1) & (1<<m.bits - 1)) }
		}
		all = (&matrix{values: &z, height: 1, length: 1}).read
	}
	if m.settings.symmetric {
		return m.checkedZeros(all, stored)
	}
	return all
}
