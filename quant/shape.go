package quant

import (
	"fmt"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

// layAlong lays codes along the columns, low bits first.
func layAlong(b *builder) error {
	perLine, err := b.layLines(2, 3)
	if err != nil {
		return err
	}
	if perLine > math.MaxInt/8 || perLine*8%b.bits != 0 {
		return b.errorf(values, "%d bytes do not hold whole codes of %d bits", perLine, b.bits)
	}
	b.finish(b.matrix.lines, perLine*8/b.bits)
	return nil
}

// layLines takes the values as lines of bytes. It returns how many bytes a line has, in a
// matrix, or in several where ranks allow it.
func (b *builder) layLines(ranks ...int) (perLine int, err error) {
	have := b.tensor[values].Shape()
	if !slices.Contains(ranks, len(have)) {
		return 0, b.errorf(values, "its shape is %v, not that of a matrix", have)
	}
	bytes, err := b.bytesOf(values)
	if err != nil {
		return 0, err
	}
	b.matrix.batch = 1
	if len(have) == 3 {
		b.matrix.batch = have[0]
	}
	b.matrix.values = &codes{bytes: bytes, e4m3: b.layout.numbers == &e4m3Numbers}
	b.matrix.lines = have[len(have)-2]
	return bytes.Shape()[len(have)-1], nil
}

// finish sets what follows from the lines and their width.
func (b *builder) finish(lines, width int) {
	m := b.matrix
	m.lines, m.width = lines, width
	m.values.packing.Bits = b.bits
	m.values.numbers = b.layout.numbers[b.bits]
	b.shape = []int{m.rows(), m.columns()}
	if len(b.tensor[values].Shape()) == 3 {
		b.shape = append([]int{m.batch}, b.shape...)
	}
}

// layPairs lays codes along the columns, the first of a pair in the high bits.
func layPairs(b *builder) error {
	err := layAlong(b)
	if err == nil {
		b.matrix.values.packing.Order = &pairOrder
	}
	return err
}

// layPermuted lays codes along the columns, eight in a word in the order of AWQ.
func layPermuted(b *builder) error {
	perLine, err := b.layLines(2)
	if err != nil {
		return err
	}
	b.matrix.values.packing.Order = &awqOrder
	b.finish(b.matrix.lines, perLine*8/b.bits)
	return nil
}

// layDown lays codes down the rows, in words of 32 bits.
func layDown(b *builder) error {
	perLine, err := b.layLines(2)
	if err != nil {
		return err
	}
	words := b.matrix.lines
	if words > math.MaxInt/32 || words*32%b.bits != 0 {
		return b.errorf(values, "%d rows of words do not hold whole codes of %d bits", words, b.bits)
	}
	b.matrix.values.down = true
	b.finish(words*32/b.bits, perLine/4)
	return nil
}

// layBlocks lays codes along the last two dimensions, which are blocks of 16 bytes.
func layBlocks(b *builder) error {
	have := b.tensor[values].Shape()
	n := len(have) - 2
	if n < 1 || have[n+1] != 16 {
		return b.errorf(values, "its shape is %v, not that of blocks of 16 bytes", have)
	}
	if have[n] > math.MaxInt/16 {
		return b.errorf(values, "shape %v", have)
	}
	joined, err := b.tensor[values].Reshape(append(slices.Clone(have[:n]), have[n]*16)...)
	if err != nil {
		return b.failed(values, err)
	}
	b.tensor[values] = joined
	return layAlong(b)
}

// layOrdered lays codes along the columns, and refuses the orders that early versions of
// bitsandbytes had for some GPUs.
func layOrdered(b *builder) error {
	if _, ok := b.tensor[order]; ok {
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
	}
	return layAlong(b)
}

// layWords lays integers along the columns that do not fill their words: their shape is
// stored.
func layWords(b *builder) error {
	perLine, err := b.layLines(2)
	if err != nil {
		return err
	}
	size := b.size
	if size == nil {
		if size, err = integers(b.tensor[shape]); err != nil {
			return b.failed(shape, err)
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
					return b.errorf(values, "codes of %d bits or of %d; only a config tells", b.bits, bits)
				}
				b.bits = bits
			}
		}
	}
	if size[0] != int64(b.matrix.lines) || b.bits == 0 || !fits(b.bits) {
		return b.errorf(shape, "%v at %d bits does not fill %d rows of %d words", size, b.bits, b.matrix.lines, words)
	}
	b.finish(b.matrix.lines, int(size[1]))
	return nil
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

// layState lays codes along all elements, whose shape is in the JSON of bitsandbytes, the
// first of a pair in the high bits.
func layState(b *builder) error {
	text, err := readJSON(b.tensor[state])
	if err == nil {
		err = decode(text, &b.state, "quant_type dtype nested_dtype")
	}
	if err != nil {
		return b.failed(state, err)
	}
	s := b.state
	bytes, err := b.bytesOf(values)
	if err != nil {
		return err
	}
	stored := bytes.Len()
	n := 1
	for _, d := range s.Shape {
		if d < 1 || n > (2*min(stored, math.MaxInt/2))/d {
			return b.errorf(state, "shape %s does not fill %d bytes", cut(fmt.Sprint(s.Shape)), stored)
		}
		n *= d
	}
	if cdiv(n, 2) != stored || stored == 0 {
		return b.errorf(state, "shape %s does not fill %d bytes", cut(fmt.Sprint(s.Shape)), stored)
	}
	flat, err := bytes.Reshape(1, stored)
	if err != nil {
		return b.failed(values, err)
	}
	numbers, err := b.readTable(codebook, 16)
	if err != nil {
		return err
	}
	b.matrix.values = &codes{bytes: flat, packing: dequant.Packing{Bits: b.bits, Order: &pairOrder}, numbers: numbers}
	b.matrix.batch, b.matrix.lines, b.matrix.width, b.shape = 1, 1, n, s.Shape
	return nil
}
