package quant

import (
	"errors"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

var errNoGroups = errors.New("only a config tells the size of its groups")

// per says what a scale is for: height lines of length positions each.
func (b *builder) per(height, length int) {
	b.matrix.height, b.matrix.length = max(1, height), max(1, length)
}

// scaleRows has a scale for each row.
func scaleRows(b *builder) error {
	b.per(1, b.matrix.width)
	if t := b.tensor[scales]; len(t.Shape()) == 1 && t.Len() == b.matrix.lines {
		column, err := t.Reshape(t.Len(), 1)
		if err != nil {
			return b.failed(scales, err)
		}
		b.tensor[scales] = column
	}
	return b.findGrids()
}

// scaleTiles has a scale for each block.
func scaleTiles(b *builder) error {
	b.findBlocks()
	return b.findGrids()
}

// scaleGroups has a scale for each group of adjacent columns.
func scaleGroups(b *builder) error {
	size := b.layout.group
	if g := b.settings.GroupSize; size == 0 && g != nil {
		size = *g
	}
	if err := b.groupColumns(size); err != nil {
		return err
	}
	return b.findGrids()
}

func (b *builder) groupColumns(size int) error {
	switch {
	case size == 0:
		return b.failed(scales, errNoGroups)
	case size < 0 || b.matrix.width%size != 0:
		return b.errorf(scales, "%d columns are not whole groups of %d", b.matrix.width, size)
	}
	b.per(1, size)
	return nil
}

// scaleInputs has a scale for each group of rows, in each column.
func scaleInputs(b *builder) error {
	g := b.settings.GroupSize
	switch {
	case g == nil:
		return b.failed(scales, errNoGroups)
	case *g == -1:
		b.per(b.matrix.lines, 1)
	default:
		b.per(*g, 1)
	}
	if _, ok := b.tensor[index]; b.settings.Reordered && !ok && b.matrix.lines > b.matrix.height {
		return b.errorf(values, "the config says desc_act, and the index of its groups is missing")
	}
	return b.findGrids()
}

// scaleBlocked has a scale for each group of adjacent columns, in the order of cuBLAS.
func scaleBlocked(b *builder) error {
	if err := b.groupColumns(b.layout.group); err != nil {
		return err
	}
	positions := b.matrix.width / b.matrix.length
	down, across := cdiv(b.matrix.lines, 128), cdiv(positions, 4)
	if len(b.tensor[values].Shape()) != 2 {
		return b.errorf(values, "its shape is %v, not that of a matrix", b.tensor[values].Shape())
	}
	if err := b.checkShape(scales, 128*down, 4*across); err != nil {
		return err
	}
	f, err := b.numbersOf(scales)
	if err != nil {
		return err
	}
	if f.Tensor, err = f.Reshape(down, across, 512); err != nil {
		return b.failed(scales, err)
	}
	b.matrix.scales = blocked{f}
	return nil
}

// scaleElements has a scale for each group of adjacent elements, across rows. It may be
// scaled itself.
func scaleElements(b *builder) error {
	s := b.state
	if s.Blocksize < 1 || s.Blocksize > maxDimension {
		return b.errorf(state, "blocksize is %d", s.Blocksize)
	}
	b.per(1, s.Blocksize)
	scale, err := b.flatten(scales, cdiv(b.matrix.width, s.Blocksize))
	if err != nil {
		return err
	}
	if scale.DType() == safetensors.F32 {
		b.matrix.scales = floats{Tensor: scale}
		return nil
	}
	if s.Nested < 1 || s.Nested > maxDimension {
		return b.errorf(state, "nested_blocksize is %d", s.Nested)
	}
	outer, err := b.flatten(nestedScales, cdiv(scale.Len(), s.Nested))
	if err != nil {
		return err
	}
	t, err := b.readTable(nestedNumbers, 256)
	if err != nil {
		return err
	}
	b.matrix.scales = nested{codes: scale, numbers: t, scales: outer, group: s.Nested, offset: float32(s.Offset)}
	return nil
}

// findBlocks takes the blocks of the config, unless the layout has its own. Where the config
// has none, a single scale is for a whole matrix, and two are for its halves, as of gate
// and up.
func (b *builder) findBlocks() {
	have := b.tensor[scales].Shape()
	rank := len(have)
	switch {
	case b.layout.group != 0:
		b.per(b.layout.group, b.layout.group)
	case b.config.block != nil:
		b.per(b.config.block[0], b.config.block[1])
	case b.tensor[scales].Len() == 1:
		b.per(b.matrix.lines, b.matrix.width)
	case b.config.method != "" && rank == 3 && have[2] == 1 && (have[1] == 1 || have[1] == 2 && b.matrix.lines%2 == 0):
		b.per(b.matrix.lines/have[1], b.matrix.width)
	default:
		b.per(128, 128)
	}
}

// scaleDescribed has scales for what the config says, else for what their shape says.
func scaleDescribed(b *builder) error {
	have := b.tensor[scales].Shape()
	w := b.weights
	if w == nil {
		w = &weights{}
	}
	rank := len(have)
	words := b.layout.bits == 0
	size := 0
	b.per(1, b.matrix.width)
	switch strategy := w.Strategy; {
	case strategy == "tensor", strategy == "" && b.tensor[scales].Len() == 1 && !words:
		b.per(b.matrix.lines, b.matrix.width)
	case strategy == "channel", strategy == "" && rank > 1 && have[rank-1] == 1 && have[rank-2] == b.matrix.lines:
	case strategy == "block":
		b.per(w.Block[0], w.Block[1])
	case strategy == "group", strategy == "tensor_group", strategy == "" && w.GroupSize > 0:
		size = w.GroupSize
	case strategy != "":
		return b.errorf(scales, "strategy %s of weights", quote(strategy))
	case words && rank > 1 && have[rank-1] > 0:
		size = max(1, b.matrix.width/have[rank-1])
	default:
		b.findBlocks()
	}
	if size > 0 {
		if err := b.groupColumns(size); err != nil {
			return err
		}
	}
	return b.findGrids()
}

// findGrids finds scales, zero points and so on, and checks their shapes.
func (b *builder) findGrids() (err error) {
	lines, positions := cdiv(b.matrix.lines, b.matrix.height), cdiv(b.matrix.width, b.matrix.length)
	if b.matrix.scales, err = b.floats(scales, lines, positions); err != nil {
		return err
	}
	if _, ok := b.tensor[biases]; ok {
		if b.matrix.biases, err = b.floats(biases, lines, positions); err != nil {
			return err
		}
	}
	if _, ok := b.tensor[zeros]; ok {
		if err := b.findZeros(lines, positions); err != nil {
			return err
		}
	} else if b.weights != nil && b.weights.Symmetric != nil && !*b.weights.Symmetric {
		return b.errorf(values, "its zero points are missing, though the config says that it is not symmetric")
	}
	x, ok := b.tensor[index]
	if !ok {
		if b.weights.indexed() && positions > 1 {
			return b.errorf(values, "the config says actorder, and the index of its groups is missing")
		}
		return nil
	}
	if b.matrix.values.down {
		b.matrix.lineIndex = &groupIndex{tensor: x, groups: lines, size: b.matrix.height}
		return b.checkShape(index, b.matrix.lines)
	}
	b.matrix.positionIndex = &groupIndex{tensor: x, groups: positions, size: b.matrix.length, mayBeEmpty: true}
	return b.checkShape(index, b.matrix.width)
}

// floats returns a part with a number for each group.
func (b *builder) floats(r role, lines, positions int) (grid, error) {
	want := []int{lines, positions}
	if len(b.tensor[values].Shape()) == 3 {
		want = []int{b.matrix.batch, lines, positions}
	}
	if t := b.tensor[r]; t.Len() == 1 && b.matrix.batch == 1 && lines*positions == 1 {
		var err error
		if b.tensor[r], err = t.Reshape(want...); err != nil {
			return nil, b.failed(r, err)
		}
	}
	if err := b.checkShape(r, want...); err != nil {
		return nil, err
	}
	return b.numbersOf(r)
}

// numbersOf returns the numbers of a part, with the one that scales scales.
func (b *builder) numbersOf(r role) (f floats, err error) {
	f.Tensor = b.tensor[r]
	if f.DType() == safetensors.U8 {
		if f.Tensor, err = f.Bitcast(safetensors.F8_E8M0); err != nil {
			return f, b.failed(r, err)
		}
	}
	for r, s := range map[role]**scalar{factor: &f.factor, divisor: &f.divisor} {
		if t, ok := b.tensor[r]; ok {
			if t.Len() != 1 {
				return f, b.errorf(r, "%v does not have one element", t)
			}
			*s = &scalar{Tensor: t}
		}
	}
	return f, nil
}

// wordsFor returns how many words of 32 bits hold n codes.
func wordsFor(n, bits int) int { return n/32*bits + cdiv(n%32*bits, 32) }

// findZeros finds zero points: packed like the values, or one by one.
func (b *builder) findZeros(lines, positions int) (err error) {
	if b.tensor[zeros].DType() == safetensors.I8 {
		b.matrix.zeros, err = b.floats(zeros, lines, positions)
		return err
	}
	v := b.matrix.values
	z := &codes{packing: dequant.Packing{Bits: b.bits, Order: v.packing.Order}, numbers: v.numbers}
	want := []int{lines, wordsFor(positions, b.bits)}
	if b.layout.methods[0] == compressed {
		z.down = true
		want = []int{wordsFor(lines, b.bits), positions}
	} else if b.config.plusOne {
		z.numbers = nextNumbers[b.bits]
	}
	if err := b.checkShape(zeros, want...); err != nil {
		return err
	}
	z.bytes, err = b.bytesOf(zeros)
	b.matrix.zeros = z
	return err
}
