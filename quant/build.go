package quant

import (
	"fmt"
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
	state  quantState
	matrix *matrix
}

// build returns the tensor that a module stands for.
func build(m *module, c *config) (safetensors.Tensor, error) {
	b := newBuilder(m, c)
	for _, step := range []func(*builder) error{findBits, m.layout.lay, m.layout.scale} {
		if err := step(b); err != nil {
			return safetensors.Tensor{}, err
		}
	}
	t, err := safetensors.NewTensorAt(safetensors.F32, b.shape, b.matrix)
	if err != nil {
		return safetensors.Tensor{}, b.failed(values, err)
	}
	return t, nil
}

func newBuilder(m *module, c *config) *builder {
	return &builder{module: m, config: c, matrix: &matrix{name: m.result(), transposed: m.layout.transposed, constant: m.layout.constant}}
}

// findBits finds the size of a code, unless layWords has to.
func findBits(b *builder) error {
	switch {
	case b.layout.bits != 0:
		b.bits = b.layout.bits
	case b.weights != nil:
		b.bits = b.weights.Bits
	default:
		b.bits = b.settings.Bits
	}
	method := b.layout.methods[0]
	if method == awq && b.bits == 0 {
		b.bits = 4
	}
	allowed := map[string][]int{gptq: {2, 3, 4, 8}, awq: {4}, mlx: {2, 3, 4, 5, 6, 8}}[method]
	switch {
	case b.bits == 0 && method == compressed:
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

// checkShape compares the shape of a part with the one that it must have.
func (m *module) checkShape(r role, want ...int) error {
	if have := m.tensor[r].Shape(); !slices.Equal(have, want) {
		return m.errorf(r, "its shape is %v, but %s needs %v", have, quote(m.name(values)), want)
	}
	return nil
}

// bytesOf returns the bytes of a part, in the shape that it has.
func (b *builder) bytesOf(r role) (safetensors.Tensor, error) {
	t, err := b.tensor[r].Bitcast(safetensors.U8)
	if err != nil {
		return t, b.failed(r, fmt.Errorf("its bytes: %w", err))
	}
	return t, nil
}
