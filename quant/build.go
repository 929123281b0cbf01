package quant

import (
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// A builder makes the matrix of a module, in steps. A step panics with a problem where the
// tensors do not fit, as package encoding/gob does; run returns it.
type builder struct {
	*module
	config *config
	bits   int   // of a code
	outer  []int // dimensions before those of a matrix: how many there are, or none
	shape  []int // of the result
	state  quantState
	matrix *matrix
}

type problem struct{ error }

func newBuilder(m *module, c *config) *builder {
	return &builder{module: m, config: c, matrix: &matrix{name: m.result(), transposed: m.layout.transposed, constant: m.layout.constant}}
}

// run takes steps, up to the first with a problem.
func (b *builder) run(steps ...func(*builder)) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case problem:
			err = p.error
		default:
			panic(p)
		}
	}()
	for _, step := range steps {
		step(b)
	}
	return nil
}

// fail ends the step.
func (b *builder) fail(r role, format string, args ...any) { b.check(r, fmt.Errorf(format, args...)) }

// check ends the step if there is an error of a part.
func (b *builder) check(r role, err error) {
	if err != nil {
		panic(problem{b.failed(r, err)})
	}
}

// build returns the tensor that a module stands for.
func build(m *module, c *config) (t safetensors.Tensor, err error) {
	b := newBuilder(m, c)
	err = b.run(findBits, m.layout.lay, m.layout.scale, findGrids, func(b *builder) {
		t, err = safetensors.NewTensorAt(safetensors.F32, b.shape, b.matrix)
		b.check(values, err)
	})
	return t, err
}

// findBits finds the size of a code, unless layWords has to.
func findBits(b *builder) {
	sizes := b.layout.sizes
	switch {
	case b.layout.bits != 0:
		b.bits = b.layout.bits
		return
	case b.weights != nil:
		b.bits = b.weights.Bits
	case b.settings.Bits == 0 && len(sizes) == 1:
		b.bits = sizes[0]
	default:
		b.bits = b.settings.Bits
	}
	switch {
	case b.bits == 0 && b.has(shape):
	case b.bits == 0:
		b.fail(values, "only a config tells the bits of its codes")
	case !slices.Contains(sizes, b.bits):
		b.fail(values, "codes of %d bits", b.bits)
	}
}

// flatten returns a part of n elements as a single line.
func (b *builder) flatten(r role, n int) safetensors.Tensor {
	if !b.has(r) {
		b.fail(values, "%s is missing", quote(b.name(r)))
	}
	if t := b.tensor[r]; t.Len() != n {
		b.fail(r, "%v does not have %d elements", t, n)
	}
	b.reshape(r, 1, n)
	return b.tensor[r]
}

func (b *builder) reshape(r role, shape ...int) {
	t, err := b.tensor[r].Reshape(shape...)
	b.check(r, err)
	b.tensor[r] = t
}

// readTable reads the numbers of n codes.
func (b *builder) readTable(r role, n int) *dequant.Table {
	of := new(dequant.Table)
	_, err := safetensors.Append(of[:0], b.flatten(r, n))
	b.check(r, err)
	return of
}

// checkShape compares the shape of a part with the one that it must have.
func (b *builder) checkShape(r role, want ...int) {
	if have := b.tensor[r].Shape(); !slices.Equal(have, want) {
		b.fail(r, "its shape is %v, but %s needs %v", have, quote(b.name(values)), want)
	}
}

// bytesOf returns the bytes of a part, in the shape that it has.
func (b *builder) bytesOf(r role) safetensors.Tensor {
	t, err := b.tensor[r].Bitcast(safetensors.U8)
	if err != nil {
		b.fail(r, "its bytes: %w", err)
	}
	return t
}
