package quant

import (
	"encoding/json"
	"errors"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// A builder makes the matrix of a module.
type builder struct {
	*module
	config  *config
	weights *weights // of compressed-tensors; nil if the config does not have it
	bits    int      // of a code
	shape   []int    // of the result
	matrix  *matrix
}

// build returns the tensor that a module stands for.
func build(m *module, c *config) (safetensors.Tensor, error) {
	b := &builder{module: m, config: c}
	b.matrix = &matrix{name: m.result(), transposed: m.layout.transposed, constant: m.layout.constant}
	for _, step := range []func() error{b.findWeights, b.findBits, b.findShape, b.findNumbers, b.findGroups, b.findGrids} {
		if err := step(); err != nil {
			return safetensors.Tensor{}, err
		}
	}
	t, err := safetensors.NewTensorAt(safetensors.F32, b.shape, b.matrix)
	if err != nil {
		return safetensors.Tensor{}, b.errorf(values, "%w", err)
	}
	return t, nil
}

func (b *builder) findWeights() (err error) {
	if b.config.method != compressed {
		return nil
	}
	b.weights, err = b.config.of(b.path(), b.layout.format)
	if err != nil {
		return b.errorf(values, "%w", err)
	}
	return nil
}

// findBits finds the size of a code.
func (b *builder) findBits() error {
	switch b.layout.element {
	case e4m3, signed:
		b.bits = 8
	case e2m1, mapped:
		b.bits = 4
	default:
		b.bits = b.config.bits
		if s, ok := b.config.schemes[b.path()]; ok && b.config.method == mlx && s.Bits != 0 {
			b.bits = s.Bits
		}
		if b.weights != nil {
			b.bits = b.weights.Bits
		}
		if b.bits == 0 && b.layout.packing == permuted {
			b.bits = 4
		}
	}
	allowed := map[string][]int{gptq: {2, 3, 4, 8}, awq: {4}, mlx: {2, 3, 4, 5, 6, 8}}[b.layout.methods[0]]
	switch {
	case b.bits == 0 && b.layout.element == offset:
		return nil // findShape tells
	case b.bits == 0:
		return b.errorf(values, "only a config tells the bits of its codes")
	case b.bits < 1 || b.bits > 8 || allowed != nil && !slices.Contains(allowed, b.bits):
		return b.errorf(values, "codes of %d bits", b.bits)
	}
	return nil
}

// findShape finds the lines of the values, and the shape of the result.
func (b *builder) findShape() error {
	have := b.tensor[values].Shape()
	if b.layout.packing == pairs {
		return b.readState()
	}
	if b.layout.packing == blocks {
		if len(have) < 3 || have[len(have)-1] != 16 {
			return b.errorf(values, "its shape is %v, not that of blocks of 16 bytes", have)
		}
		n := len(have) - 2
		if have[n] > math.MaxInt/16 {
			return b.errorf(values, "shape %v", have)
		}
		joined, err := b.tensor[values].Reshape(append(slices.Clone(have[:n]), have[n]*16)...)
		if err != nil {
			return b.errorf(values, "%w", err)
		}
		b.tensor[values], have = joined, joined.Shape()
	}
	if len(have) != 2 && (len(have) != 3 || b.layout.packing == down || b.layout.element == offset) {
		return b.errorf(values, "its shape is %v, not that of a matrix", have)
	}
	bytes, err := b.tensor[values].Bitcast(safetensors.U8)
	if err != nil {
		return b.errorf(values, "%w", err)
	}
	b.matrix.values = &codes{bytes: bytes, packing: dequant.Packing{Bits: b.bits}, down: b.layout.packing == down}
	b.matrix.batch = 1
	if len(have) == 3 {
		b.matrix.batch = have[0]
	}
	perLine := bytes.Shape()[len(have)-1]
	b.matrix.lines = have[len(have)-2]
	switch {
	case b.layout.element == offset:
		if err := b.readShape(perLine); err != nil {
			return err
		}
	case b.matrix.values.down:
		b.matrix.width = have[1]
		if b.matrix.lines > math.MaxInt/32 || b.matrix.lines*32%b.bits != 0 {
			return b.errorf(values, "%d rows of words hold no whole codes of %d bits", b.matrix.lines, b.bits)
		}
		b.matrix.lines = b.matrix.lines * 32 / b.bits
	default:
		if perLine > math.MaxInt/8 || perLine*8%b.bits != 0 {
			return b.errorf(values, "%d bytes hold no whole codes of %d bits", perLine, b.bits)
		}
		b.matrix.width = perLine * 8 / b.bits
	}
	b.shape = []int{b.matrix.rows(), b.matrix.columns()}
	if len(have) == 3 {
		b.shape = append([]int{b.matrix.batch}, b.shape...)
	}
	return nil
}

// readShape reads the shape of integers that do not fill their words.
func (b *builder) readShape(perLine int) error {
	t := b.tensor[shape]
	if t.Len() != 2 {
		return b.errorf(shape, "%v has not two elements", t)
	}
	var size []int64
	if t.DType() == safetensors.I32 {
		short, err := safetensors.Append[int32](nil, t)
		if err != nil {
			return b.errorf(shape, "%w", err)
		}
		size = []int64{int64(short[0]), int64(short[1])}
	} else {
		var err error
		if size, err = safetensors.Append[int64](nil, t); err != nil {
			return b.errorf(shape, "%w", err)
		}
	}
	words := int64(perLine / 4)
	fits := func(bits int) bool {
		per := int64(bits)
		return size[1] >= 0 && size[1] <= words*32 && size[1] <= math.MaxInt && (size[1]*per+31)/32 == words
	}
	if b.bits == 0 {
		for bits := 1; bits <= 8; bits++ {
			if fits(bits) {
				if b.bits != 0 {
					return b.errorf(values, "codes of %d or of %d bits; only a config tells", b.bits, bits)
				}
				b.bits = bits
			}
		}
		b.matrix.values.packing.Bits = b.bits
	}
	if size[0] != int64(b.matrix.lines) || b.bits == 0 || !fits(b.bits) {
		return b.errorf(shape, "%v of %d bits need other than %d rows of %d words", size, b.bits, b.matrix.lines, words)
	}
	b.matrix.width = int(size[1])
	return nil
}

// quantState is the JSON of bitsandbytes.
type quantState struct {
	Blocksize int     `json:"blocksize"`
	Shape     []int   `json:"shape"`
	Nested    int     `json:"nested_blocksize"`
	Offset    float64 `json:"nested_offset"`
}

// readState reads the JSON of bitsandbytes: the shape, and how the scales are stored.
func (b *builder) readState() error {
	text, err := safetensors.Append[byte](nil, b.tensor[state])
	if err != nil {
		return b.errorf(state, "%w", err)
	}
	var s quantState
	if err := json.Unmarshal(text, &s); err != nil {
		return b.errorf(state, "%w", err)
	}
	bytes := b.tensor[values].Len()
	n := 1
	for _, d := range s.Shape {
		if d < 1 || n > (2*min(bytes, math.MaxInt/2))/d {
			return b.errorf(state, "shape %v needs other than %d bytes", s.Shape, bytes)
		}
		n *= d
	}
	if cdiv(n, 2) != bytes || bytes == 0 {
		return b.errorf(state, "shape %v needs other than %d bytes", s.Shape, bytes)
	}
	flat, err := b.tensor[values].Reshape(1, bytes)
	if err != nil {
		return b.errorf(values, "%w", err)
	}
	if s.Blocksize < 1 || s.Blocksize > maxDimension {
		return b.errorf(state, "blocksize is %d", s.Blocksize)
	}
	b.matrix.values = &codes{bytes: flat, packing: dequant.Packing{Bits: b.bits, Order: &pairOrder}}
	b.matrix.batch, b.matrix.lines, b.matrix.width, b.shape = 1, 1, n, s.Shape
	b.matrix.height, b.matrix.length = 1, s.Blocksize
	scale, err := b.flatten(scales, cdiv(n, s.Blocksize))
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

// flatten returns a part of n elements as a single line.
func (b *builder) flatten(r role, n int) (safetensors.Tensor, error) {
	t, ok := b.tensor[r]
	if !ok {
		return t, b.errorf(values, "%s is missing", quote(b.name(r)))
	}
	if t.Len() != n {
		return t, b.errorf(r, "%v has not %d elements", t, n)
	}
	flat, err := t.Reshape(1, n)
	if err != nil {
		return t, b.errorf(r, "%w", err)
	}
	return flat, nil
}

// readTable reads the numbers of n codes.
func (b *builder) readTable(r role, n int) (*dequant.Table, error) {
	t, err := b.flatten(r, n)
	if err != nil {
		return nil, err
	}
	v, err := safetensors.Append[float32](nil, t)
	if err != nil {
		return nil, b.errorf(r, "%w", err)
	}
	return table(8, func(code int) float32 {
		if code < n {
			return v[code]
		}
		return 0
	}), nil
}

// findNumbers finds the number of each code.
func (b *builder) findNumbers() (err error) {
	v := b.matrix.values
	switch b.layout.element {
	case e4m3:
		v.e4m3, v.numbers = true, e4m3Numbers
	case e2m1:
		v.numbers = e2m1Numbers
	case signed:
		v.numbers = table(8, func(code int) float32 { return float32(int8(code)) })
	case offset:
		v.numbers = offsetNumbers(b.bits)
	case unsigned:
		v.numbers = table(b.bits, func(code int) float32 { return float32(code) })
	case mapped:
		v.numbers, err = b.readTable(numbers, 16)
	}
	if b.layout.packing == permuted {
		v.packing.Order = &awqOrder
	}
	return err
}

func offsetNumbers(bits int) *dequant.Table {
	return table(bits, func(code int) float32 { return float32(code - 1<<(bits-1)) })
}

var errNoGroups = errors.New("only a config tells the size of its groups")

// findGroups finds what each scale is for.
func (b *builder) findGroups() error {
	whole := func(n int) int { return max(1, n) }
	b.matrix.height, b.matrix.length = max(1, b.matrix.height), max(1, b.matrix.length)
	size := b.layout.group
	if size == 0 {
		size = b.config.group
		if s, ok := b.config.schemes[b.path()]; ok && b.config.method == mlx && s.GroupSize != 0 {
			size = s.GroupSize
		}
	}
	switch b.layout.scaling {
	case wholes:
		b.matrix.height, b.matrix.length = whole(b.matrix.lines), whole(b.matrix.width)
	case rows:
		b.matrix.length = whole(b.matrix.width)
	case tiles:
		b.matrix.height, b.matrix.length = 128, 128
		if b.layout.group == 0 && b.config.block != nil {
			b.matrix.height, b.matrix.length = b.config.block[0], b.config.block[1]
		}
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
			return b.errorf(scales, "%w", errNoGroups)
		}
		b.matrix.height = size
	case described:
		return b.findDescribed()
	}
	return nil
}

func (b *builder) groupError(size, width int) error {
	if size == 0 {
		return b.errorf(scales, "%w", errNoGroups)
	}
	return b.errorf(scales, "%d columns are not whole groups of %d", width, size)
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
		b.matrix.height, b.matrix.length = 128, 128
		if b.config.block != nil {
			b.matrix.height, b.matrix.length = b.config.block[0], b.config.block[1]
		}
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
			return nil, b.errorf(r, "%w", err)
		}
	default:
		if err := b.checkShape(r, want...); err != nil {
			return nil, err
		}
	}
	if t.DType() == safetensors.U8 {
		var err error
		if t, err = t.Bitcast(safetensors.F8_E8M0); err != nil {
			return nil, b.errorf(r, "%w", err)
		}
	}
	g := floats{Tensor: t}
	for r, s := range map[role]**scalar{factor: &g.factor, divisor: &g.divisor} {
		if t, ok := b.tensor[r]; ok {
			if t.Len() != 1 {
				return nil, b.errorf(r, "%v has not one element", t)
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
			z.numbers = table(b.bits, func(code int) float32 { return float32((code + 1) & (1<<b.bits - 1)) })
		}
		if err := b.checkShape(zeros, lines, wordsFor(positions, b.bits)); err != nil {
			return err
		}
	}
	bytes, err := b.tensor[zeros].Bitcast(safetensors.U8)
	if err != nil {
		return b.errorf(zeros, "%w", err)
	}
	z.bytes = bytes
	b.matrix.zeros = z
	return nil
}
