package quant

import (
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// per says what a scale is for: height lines of length positions each.
func (b *builder) per(height, length int) {
	b.matrix.height, b.matrix.length = max(1, height), max(1, length)
}

// perGroup says that a scale is for a group of adjacent columns.
func (b *builder) perGroup(size int) {
	if size == 0 {
		b.fail(scales, "only a config tells the size of its groups")
	}
	if size < 0 || b.matrix.width%size != 0 {
		b.fail(scales, "%d columns are not whole groups of %d", b.matrix.width, size)
	}
	b.per(1, size)
}

// scaleRows has a scale for each row.
func scaleRows(b *builder) {
	b.per(1, b.matrix.width)
	if t := b.tensor[scales]; len(t.Shape()) == 1 && t.Len() == b.matrix.lines {
		b.reshape(scales, t.Len(), 1)
	}
}

// scaleGroups has a scale for each group of adjacent columns.
func scaleGroups(b *builder) {
	size := b.layout.group
	if g := b.settings.GroupSize; size == 0 && g != nil {
		size = *g
	}
	b.perGroup(size)
}

// scaleInputs has a scale for each group of rows, in each column.
func scaleInputs(b *builder) {
	switch g := b.settings.GroupSize; {
	case g == nil:
		b.fail(scales, "only a config tells the size of its groups")
	case *g == -1:
		b.per(b.matrix.lines, 1)
	default:
		b.per(*g, 1)
	}
	if b.settings.Reordered && !b.has(index) && b.matrix.lines > b.matrix.height {
		b.fail(values, "the config says desc_act, and the index of its groups is missing")
	}
}

// scaleBlocked has a scale for each group of adjacent columns, in the order of cuBLAS.
func scaleBlocked(b *builder) {
	b.perGroup(b.layout.group)
	down, across := cdiv(b.matrix.lines, 128), cdiv(b.matrix.width/b.matrix.length, 4)
	if have := b.tensor[values].Shape(); len(have) != 2 {
		b.fail(values, "its shape is %v, not that of a matrix", have)
	}
	b.checkShape(scales, 128*down, 4*across)
	b.reshape(scales, down, across, 512)
	b.matrix.scales = blocked{b.numbersOf(scales)}
}

// scaleElements has a scale for each group of adjacent elements, across rows. It may be
// scaled itself.
func scaleElements(b *builder) {
	s := b.state
	if s.Blocksize < 1 || s.Blocksize > maxDimension {
		b.fail(state, "blocksize is %d", s.Blocksize)
	}
	b.per(1, s.Blocksize)
	scale := b.flatten(scales, cdiv(b.matrix.width, s.Blocksize))
	if scale.DType() == safetensors.F32 {
		return
	}
	if s.Nested < 1 || s.Nested > maxDimension {
		b.fail(state, "nested_blocksize is %d", s.Nested)
	}
	factors := b.flatten(nestedScales, cdiv(scale.Len(), s.Nested))
	coded := &codes{bytes: scale, packing: dequant.Packing{Bits: 8}, numbers: b.readTable(nestedNumbers, 256)}
	b.matrix.scales = nested{coded, floats{Tensor: factors}, s.Nested, float32(s.Offset)}
}

// scaleTiles has a scale for each block: those of the config, unless the layout has its own.
// Where the config has none, a single scale is for a whole matrix, and two are for its halves,
// as of gate and up.
func scaleTiles(b *builder) {
	have := b.tensor[scales].Shape()
	switch {
	case b.layout.group != 0:
		b.per(b.layout.group, b.layout.group)
	case b.config.block != nil:
		b.per(b.config.block[0], b.config.block[1])
	case b.tensor[scales].Len() == 1:
		b.per(b.matrix.lines, b.matrix.width)
	case b.config.method != "" && len(have) == 3 && have[2] == 1 && (have[1] == 1 || have[1] == 2 && b.matrix.lines%2 == 0):
		b.per(b.matrix.lines/have[1], b.matrix.width)
	default:
		b.per(128, 128)
	}
}

// scaleDescribed has scales for what the config says, else for what their shape says.
func scaleDescribed(b *builder) {
	have := b.tensor[scales].Shape()
	rank := len(have)
	var w weights
	if b.weights != nil {
		w = *b.weights
	}
	words := b.layout.bits == 0
	switch said := w.Strategy != ""; {
	case w.Strategy == "tensor", !said && b.tensor[scales].Len() == 1 && !words:
		b.per(b.matrix.lines, b.matrix.width)
	case w.Strategy == "channel", !said && rank > 1 && have[rank-1] == 1 && have[rank-2] == b.matrix.lines:
		b.per(1, b.matrix.width)
	case w.Strategy == "block":
		b.per(w.Block[0], w.Block[1])
	case w.Strategy == "group", w.Strategy == "tensor_group", !said && w.GroupSize > 0:
		b.perGroup(w.GroupSize)
	case said:
		b.fail(scales, "strategy %s of weights", quote(w.Strategy))
	case words && rank > 1 && have[rank-1] > 0:
		b.perGroup(max(1, b.matrix.width/have[rank-1]))
	default:
		scaleTiles(b)
	}
}

// findGrids finds scales, zero points and so on, and checks their shapes.
func findGrids(b *builder) {
	m := b.matrix
	lines, positions := cdiv(m.lines, m.height), cdiv(m.width, m.length)
	if m.scales == nil {
		m.scales = b.floats(scales, lines, positions)
	}
	if b.has(biases) {
		m.biases = b.floats(biases, lines, positions)
	}
	switch {
	case b.has(zeros):
		b.findZeros(lines, positions)
	case b.weights != nil && b.weights.Symmetric != nil && !*b.weights.Symmetric:
		b.fail(values, "its zero points are missing, though the config says that it is not symmetric")
	}
	switch x := b.tensor[index]; {
	case b.has(index) && m.values.down:
		m.lineIndex = &groupIndex{tensor: x, groups: lines, size: m.height}
		b.checkShape(index, m.lines)
	case b.has(index):
		m.positionIndex = &groupIndex{tensor: x, groups: positions, size: m.length, mayBeEmpty: true}
		b.checkShape(index, m.width)
	case b.weights.indexed() && positions > 1:
		b.fail(values, "the config says actorder, and the index of its groups is missing")
	}
}

// floats returns a part with a number for each group.
func (b *builder) floats(r role, lines, positions int) grid {
	want := slices.Concat(b.outer, []int{lines, positions})
	if b.tensor[r].Len() == 1 && !slices.ContainsFunc(want, func(n int) bool { return n != 1 }) {
		b.reshape(r, want...)
	}
	b.checkShape(r, want...)
	return b.numbersOf(r)
}

// numbersOf returns the numbers of a part, with the one that scales scales.
func (b *builder) numbersOf(r role) (f floats) {
	f.Tensor = b.tensor[r]
	if f.DType() == safetensors.U8 {
		var err error
		f.Tensor, err = f.Bitcast(safetensors.F8_E8M0)
		b.check(r, err)
	}
	for r, s := range map[role]**scalar{factor: &f.factor, divisor: &f.divisor} {
		if t := b.tensor[r]; b.has(r) {
			if t.Len() != 1 {
				b.fail(r, "%v does not have one element", t)
			}
			*s = &scalar{Tensor: t}
		}
	}
	return f
}

// wordsFor returns how many words of 32 bits hold n codes.
func wordsFor(n, bits int) int { return n/32*bits + cdiv(n%32*bits, 32) }

// findZeros finds zero points: packed like the values, or one by one.
func (b *builder) findZeros(lines, positions int) {
	if b.tensor[zeros].DType() == safetensors.I8 {
		b.matrix.zeros = b.floats(zeros, lines, positions)
		return
	}
	v := b.matrix.values
	z := &codes{packing: v.packing, numbers: v.numbers}
	want := []int{lines, wordsFor(positions, b.bits)}
	if b.layout.methods[0] == compressed {
		z.down = true
		want = []int{wordsFor(lines, b.bits), positions}
	} else if b.config.plusOne {
		z.numbers = nextNumbers[b.bits]
	}
	b.checkShape(zeros, want...)
	z.bytes = b.bytesOf(zeros)
	b.matrix.zeros = z
}
