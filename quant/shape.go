package quant

import (
	"fmt"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// layAlong lays codes along the columns, low bits first unless the layout has an order.
func layAlong(b *builder) {
	perLine := b.takeLines(2, 3)
	if perLine > math.MaxInt/8 || perLine*8%b.bits != 0 {
		b.fail(values, "%d bytes do not hold whole codes of %d bits", perLine, b.bits)
	}
	b.finish(b.matrix.lines, perLine*8/b.bits)
}

// takeLines takes the values as lines of bytes. It returns how many bytes a line has, in a
// matrix, or in several where ranks allow it.
func (b *builder) takeLines(ranks ...int) (perLine int) {
	have := b.tensor[values].Shape()
	n := len(have) - 2
	if !slices.Contains(ranks, len(have)) {
		b.fail(values, "its shape is %v, not that of a matrix", have)
	}
	b.outer, b.matrix.lines = have[:n], have[n]
	b.matrix.values = &codes{bytes: b.bytesOf(values), e4m3: b.layout.numbers == &e4m3Numbers}
	return b.matrix.values.bytes.Shape()[n+1]
}

// finish sets what follows from the lines and their width.
func (b *builder) finish(lines, width int) {
	m := b.matrix
	m.lines, m.width = lines, width
	m.values.packing = dequant.Packing{Bits: b.bits, Order: b.layout.order}
	m.values.numbers = b.layout.numbers[b.bits]
	rows, columns := m.shape()
	b.shape = slices.Concat(b.outer, []int{rows, columns})
}

// layMatrix is layAlong for what can only be a matrix.
func layMatrix(b *builder) {
	b.takeLines(2)
	layAlong(b)
}

// layDown lays codes down the rows, in words of 32 bits.
func layDown(b *builder) {
	perLine := b.takeLines(2)
	words := b.matrix.lines
	if words > math.MaxInt/32 || words*32%b.bits != 0 {
		b.fail(values, "%d rows of words do not hold whole codes of %d bits", words, b.bits)
	}
	b.matrix.values.down = true
	b.finish(words*32/b.bits, perLine/4)
}

// layBlocks lays codes along the last two dimensions, which are blocks of 16 bytes.
func layBlocks(b *builder) {
	have := b.tensor[values].Shape()
	n := len(have) - 2
	if n < 1 || have[n+1] != 16 || have[n] > math.MaxInt/16 {
		b.fail(values, "its shape is %v, not that of blocks of 16 bytes", have)
	}
	b.reshape(values, append(have[:n], have[n]*16)...)
	layAlong(b)
}

// layOrdered lays codes along the columns, and refuses the orders that early versions of
// bitsandbytes had for some GPUs.
func layOrdered(b *builder) {
	if b.has(order) {
		v, err := safetensors.Append[byte](nil, b.flatten(order, 1))
		b.check(order, err)
		if v[0] != 0 {
			b.fail(order, "elements in order %d, not row by row (0)", v[0])
		}
	}
	layAlong(b)
}

// layWords lays integers along the columns that do not fill their words: their shape is
// stored.
func layWords(b *builder) {
	words := int64(b.takeLines(2) / 4)
	size := b.size
	if size == nil {
		var err error
		size, err = integers(b.tensor[shape])
		b.check(shape, err)
	}
	fits := func(bits int) bool {
		per := int64(bits)
		return size[1] >= 0 && size[1] <= words*32 && size[1] <= math.MaxInt && (size[1]*per+31)/32 == words
	}
	if b.bits == 0 {
		for bits := 1; bits <= 8; bits++ {
			if !fits(bits) {
				continue
			}
			if b.bits != 0 {
				b.fail(values, "codes of %d bits or of %d; only a config tells", b.bits, bits)
			}
			b.bits = bits
		}
	}
	if size[0] != int64(b.matrix.lines) || b.bits == 0 || !fits(b.bits) {
		b.fail(shape, "%v at %d bits does not fill %d rows of %d words", size, b.bits, b.matrix.lines, words)
	}
	b.finish(b.matrix.lines, int(size[1]))
}

// readShapes reads the shapes of all modules together: neighbors in a file are one read.
// A module that it fails for reads its own, and says what is wrong.
func readShapes(modules []*module) {
	for _, d := range isInt {
		var of []*module
		var shapes []safetensors.Tensor
		for _, m := range modules {
			if t, ok := m.tensor[shape]; ok && t.DType() == d {
				of, shapes = append(of, m), append(shapes, t)
			}
		}
		if len(of) == 0 {
			continue
		}
		all, err := safetensors.Concat(0, shapes...)
		if err != nil {
			continue
		}
		if sizes, err := integers(all); err == nil {
			for i, m := range of {
				m.size = sizes[2*i:][:2]
			}
		}
	}
}

// integers returns the elements of a tensor of integers.
func integers(t safetensors.Tensor) ([]int64, error) {
	if t.DType() == safetensors.I64 {
		return safetensors.Append[int64](nil, t)
	}
	short, err := safetensors.Append[int32](nil, t)
	long := make([]int64, len(short))
	for i, v := range short {
		long[i] = int64(v)
	}
	return long, err
}

// quantState is the JSON of bitsandbytes.
type quantState struct {
	Blocksize int     `json:"blocksize"`
	Shape     []int   `json:"shape"`
	Nested    int     `json:"nested_blocksize"`
	Offset    float64 `json:"nested_offset"`
}

// layState lays codes along all elements, whose shape is in the JSON of bitsandbytes.
func layState(b *builder) {
	text, err := readJSON(b.tensor[state])
	b.check(state, err)
	b.check(state, decode(text, &b.state, "quant_type dtype nested_dtype"))
	bytes := b.bytesOf(values)
	stored := bytes.Len()
	n := 1
	for _, d := range b.state.Shape {
		if d < 1 || n > 2*min(stored, math.MaxInt/2)/d {
			n = 0
			break
		}
		n *= d
	}
	if cdiv(n, 2) != stored || stored == 0 {
		b.fail(state, "shape %s does not fill %d bytes", cut(fmt.Sprint(b.state.Shape)), stored)
	}
	flat, err := bytes.Reshape(1, stored)
	b.check(values, err)
	b.matrix.values = &codes{bytes: flat, packing: dequant.Packing{Bits: b.bits, Order: b.layout.order}, numbers: b.readTable(codebook, 16)}
	b.matrix.lines, b.matrix.width, b.shape = 1, n, b.state.Shape
}
