package quant

import (
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// A builder makes the matrix of a module.
type builder struct {
	*module
	config *config
	bits   int   // of a code
	shape  []int // of the result
	matrix *matrix
}

// build returns the tensor that a module stands for.
func build(m *module, c *config) (safetensors.Tensor, error) {
	b := &builder{module: m, config: c}
	b.matrix = &matrix{name: m.result(), transposed: m.layout.transposed, constant: m.layout.constant}
	for _, step := range []func() error{b.checkOrder, b.findBits, b.findShape, b.findNumbers, b.findGroups, b.findGrids} {
		if err := step(); err != nil {
			return safetensors.Tensor{}, err
		}
	}
	t, err := safetensors.NewTensorAt(safetensors.F32, b.shape, b.matrix)
	if err != nil {
		return safetensors.Tensor{}, b.failed(values, err)
	}
	return t, nil
}

// checkOrder refuses the orders that early versions of bitsandbytes had for some GPUs.
func (b *builder) checkOrder() error {
	if _, ok := b.tensor[order]; !ok {
		return nil
	}
	t, err := b.flatten(order, 1)
	if err != nil {
		return err
	}
	v, err := safetensors.Append[byte](nil, t)
	if err != nil {
		return b.failed(order, err)
	}
	if v[0] != 0 {
		return b.errorf(order, "elements in order %d, not row by row (0)", v[0])
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
		b.bits, _ = b.config.of(b.path())
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

// flatten returns a part of n elements as a single line.
func (b *builder) flatten(r role, n int) (safetensors.Tensor, error) {
	t, ok := b.tensor[r]
	if !ok {
		return t, b.errorf(values, "%s is missing", quote(b.name(r)))
	}
	if t.Len() != n {
		return t, b.errorf(r, "%v does not have %d elements", t, n)
	}
	flat, err := t.Reshape(1, n)
	if err != nil {
		return t, b.failed(r, err)
	}
	return flat, nil
}

// readTable reads the numbers of n codes.
func (b *builder) readTable(r role, n int) (*dequant.Table, error) {
	t, err := b.flatten(r, n)
	if err != nil {
		return nil, err
	}
	of := new(dequant.Table)
	if _, err := safetensors.Append(of[:0], t); err != nil {
		return nil, b.failed(r, err)
	}
	return of, nil
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
		v.numbers = signedNumbers
	case offset:
		v.numbers = offsetNumbers[b.bits]
	case unsigned:
		v.numbers = unsignedNumbers[b.bits]
	case mapped:
		v.numbers, err = b.readTable(numbers, 16)
	}
	if b.layout.packing == permuted {
		v.packing.Order = &awqOrder
	}
	return err
}
