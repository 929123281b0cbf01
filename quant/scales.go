package quant

import (
	"errors"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

var errNoGroups = errors.New("only a config tells the size of its groups")

// findGroups finds what each scale is for.
func (b *builder) findGroups() error {
	whole := func(n int) int { return max(1, n) }
	b.matrix.height, b.matrix.length = max(1, b.matrix.height), max(1, b.matrix.length)
	size := b.layout.group
	if size == 0 {
		_, size = b.config.of(b.path())
	}
	switch b.layout.scaling {
	case rows:
		b.matrix.length = whole(b.matrix.width)
	case tiles:
		b.findBlocks()
	case groups:
		if size < 1 || b.matrix.width%size != 0 {
			return b.groupError(size, b.matrix.width)
		}
		b.matrix.length = size
	case inputs:
		if size == -1 {
			size = whole(b.matrix.lines)
		}
		if size < 1 {
			return b.failed(scales, errNoGroups)
		}
		b.matrix.height = size
	case described:
		return b.findDescribed()
	}
	return nil
}

func (b *builder) groupError(size, width int) error {
	if size == 0 {
		return b.failed(scales, errNoGroups)
	}
	return b.errorf(scales, "%d columns are not whole groups of %d", width, size)
}

// findBlocks takes the blocks of the config, unless the layout has its own. Where the config
// has none, a single scale is for the whole matrix.
func (b *builder) findBlocks() {
	b.matrix.height, b.matrix.length = 128, 128
	switch {
	case b.layout.group != 0:
	case b.config.block != nil:
		b.matrix.height, b.matrix.length = b.config.block[0], b.config.block[1]
	case b.tensor[scales].Len() == 1:
		b.matrix.height, b.matrix.length = max(1, b.matrix.lines), max(1, b.matrix.width)
	}
}

// findDescribed finds what each scale is for from the strategy of the config, else
// from the shape of the scales.
func (b *builder) findDescribed() error {
	have := b.tensor[scales].Shape()
	w := b.weights
	if w == nil {
		w = &weights{}
	}
	rank := len(have)
	b.matrix.height, b.matrix.length = 1, max(1, b.matrix.width)
	switch strategy := w.Strategy; {
	case strategy == "tensor", strategy == "" && b.tensor[scales].Len() == 1 && b.layout.element != offset:
		b.matrix.height = max(1, b.matrix.lines)
		return nil
	case strategy == "channel", strategy == "" && rank > 1 && have[rank-1] == 1 && have[rank-2] == b.matrix.lines:
		return nil
	case strategy == "block":
		b.matrix.height, b.matrix.length = w.Block[0], w.Block[1]
		return nil
	case strategy == "group", strategy == "tensor_group", strategy == "" && w.GroupSize > 0:
		b.matrix.length = w.GroupSize
	case strategy != "":
		return b.errorf(scales, "strategy %q of weights", strategy)
	case b.layout.element == offset && rank > 1 && have[rank-1] > 0:
		b.matrix.length = b.matrix.width / have[rank-1]
	default:
		b.findBlocks()
		return nil
	}
	if b.matrix.length < 1 || b.matrix.width%b.matrix.length != 0 {
		return b.groupError(b.matrix.length, b.matrix.width)
	}
	return nil
}

// findGrids finds scales, zero points and so on, and checks their shapes.
func (b *builder) findGrids() (err error) {
	if b.matrix.scales != nil {
		return nil // of bitsandbytes
	}
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
	if x, ok := b.tensor[index]; ok {
		g := &groupIndex{tensor: x, groups: positions, size: b.matrix.length, mayBeEmpty: true}
		n := b.matrix.width
		b.matrix.positionIndex = g
		if b.layout.packing == down {
			g.groups, g.size, g.mayBeEmpty, n = lines, b.matrix.height, false, b.matrix.lines
			b.matrix.positionIndex, b.matrix.lineIndex = nil, g
		}
		return b.checkShape(index, n)
	}
	return nil
}

// floats returns a part with a number for each group.
func (b *builder) floats(r role, lines, positions int) (grid, error) {
	t := b.tensor[r]
	want := []int{lines, positions}
	if len(b.tensor[values].Shape()) == 3 {
		want = []int{b.matrix.batch, lines, positions}
	}
	switch {
	case lines*positions == 1 && len(want) == 2 && t.Len() == 1, b.layout.scaling == rows && len(t.Shape()) == 1 && t.Len() == lines:
		var err error
		if t, err = t.Reshape(want...); err != nil {
			return nil, b.failed(r, err)
		}
	default:
		if err := b.checkShape(r, want...); err != nil {
			return nil, err
		}
	}
	if t.DType() == safetensors.U8 {
		var err error
		if t, err = t.Bitcast(safetensors.F8_E8M0); err != nil {
			return nil, b.failed(r, err)
		}
	}
	g := floats{Tensor: t}
	for r, s := range map[role]**scalar{factor: &g.factor, divisor: &g.divisor} {
		if t, ok := b.tensor[r]; ok {
			if t.Len() != 1 {
				return nil, b.errorf(r, "%v does not have one element", t)
			}
			*s = &scalar{Tensor: t}
		}
	}
	return g, nil
}

// wordsFor returns how many words of 32 bits hold n codes.
func wordsFor(n, bits int) int { return n/32*bits + cdiv(n%32*bits, 32) }

// findZeros finds packed zero points.
func (b *builder) findZeros(lines, positions int) error {
	z := &codes{packing: dequant.Packing{Bits: b.bits, Order: b.matrix.values.packing.Order}}
	z.numbers = b.matrix.values.numbers
	if b.layout.element == offset {
		z.down = true
		if err := b.checkShape(zeros, wordsFor(lines, b.bits), positions); err != nil {
			return err
		}
	} else {
		if b.config.plusOne {
			z.numbers = nextNumbers[b.bits]
		}
		if err := b.checkShape(zeros, lines, wordsFor(positions, b.bits)); err != nil {
			return err
		}
	}
	bytes, err := b.tensor[zeros].Bitcast(safetensors.U8)
	if err != nil {
		return b.failed(zeros, err)
	}
	z.bytes = bytes
	b.matrix.zeros = z
	return nil
}
