package quant

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
)

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
			return b.failed(values, err)
		}
		b.tensor[values], have = joined, joined.Shape()
	}
	if len(have) != 2 && (len(have) != 3 || b.layout.scaling == inputs || b.layout.element == offset) {
		return b.errorf(values, "its shape is %v, not that of a matrix", have)
	}
	bytes, err := b.tensor[values].Bitcast(safetensors.U8)
	if err != nil {
		return b.failed(values, err)
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
			return b.errorf(values, "%d rows of words do not hold whole codes of %d bits", b.matrix.lines, b.bits)
		}
		b.matrix.lines = b.matrix.lines * 32 / b.bits
	default:
		if perLine > math.MaxInt/8 || perLine*8%b.bits != 0 {
			return b.errorf(values, "%d bytes do not hold whole codes of %d bits", perLine, b.bits)
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
	size := b.size
	if size == nil {
		var err error
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
		b.matrix.values.packing.Bits = b.bits
	}
	if size[0] != int64(b.matrix.lines) || b.bits == 0 || !fits(b.bits) {
		return b.errorf(shape, "%v at %d bits does not fill %d rows of %d words", size, b.bits, b.matrix.lines, words)
	}
	b.matrix.width = int(size[1])
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

const maxState = 1 << 16 // bytes; a few hundred are usual

// readState reads the JSON of bitsandbytes: the shape, and how the scales are stored.
func (b *builder) readState() error {
	if n := b.tensor[state].Size(); n > maxState {
		return b.errorf(state, "%d bytes, more than %d", n, maxState)
	}
	text, err := safetensors.Append[byte](nil, b.tensor[state])
	if err != nil {
		return b.failed(state, err)
	}
	var s quantState
	if err := json.Unmarshal(text, &s); err != nil {
		return b.failed(state, err)
	}
	bytes := b.tensor[values].Len()
	n := 1
	for _, d := range s.Shape {
		if d < 1 || n > (2*min(bytes, math.MaxInt/2))/d {
			return b.errorf(state, "shape %v does not fill %d bytes", s.Shape, bytes)
		}
		n *= d
	}
	if cdiv(n, 2) != bytes || bytes == 0 {
		return b.errorf(state, "shape %v does not fill %d bytes", s.Shape, bytes)
	}
	flat, err := b.tensor[values].Reshape(1, bytes)
	if err != nil {
		return b.failed(values, err)
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
