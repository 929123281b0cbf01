package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/shapetext"
)

// layAlong is the lay func for codes that are packed along each row, with the first code in the low
// bits unless the layout has an order.
func layAlong(m *module) {
	m.takeLines(2, 3)
	m.matrix.width = m.codesIn(m.matrix.width)
}

// layDown is the lay func for codes that are packed down each column, in words of 32 bits.
func layDown(m *module) {
	m.takeLines(2, 3)
	m.matrix.lines = m.codesIn(m.matrix.lines)
	m.matrix.values.down = true
}

// takeLines takes the values as the lines of a matrix, or of several matrices. The rank of the
// values must be one of ranks: 2 for one matrix, 3 for several.
func (m *module) takeLines(ranks ...int) {
	m.checkRank(ranks...)
	m.matrix.values.stored = m.upright(values)
	have := m.matrix.values.stored.Shape()
	n := len(have) - 2
	m.outer, m.matrix.lines, m.matrix.width = have[:n], have[n], have[n+1]
}

// codesIn returns the number of codes that are packed in this number of elements of the values. It
// panics with a problem if the last code is incomplete.
func (m *module) codesIn(elements int) int {
	d := m.tensor[values].DType()
	if elements > math.MaxInt/d.Bits() || elements*d.Bits()%m.bits != 0 {
		m.fail(values, "%d elements of %v do not hold whole codes of %d bits", elements, d, m.bits)
	}
	return elements * d.Bits() / m.bits
}

// layBlocks is the lay func for codes that are packed along the last two dimensions: the last one
// has the 16 bytes of a block, the one before it has the blocks of a row.
func layBlocks(m *module) {
	have := m.tensor[values].Shape()
	n := len(have) - 2
	if n < 1 || have[n+1] != 16 || have[n] > math.MaxInt/16 {
		m.fail(values, "its shape %s is not that of blocks of 16 bytes", shapetext.Of(have))
	}
	m.tensor[values] = m.must(values)(m.reshape(values, append(have[:n], have[n]*16)...).Bitcast(i32))
	layDown(m)
}

// layWords is the lay func for codes that are packed along each row, and need not fill the last
// word of the row. A part of the module contains the shape of the result.
func layWords(m *module) {
	m.takeLines(2)
	b, err := safetensors.Append[byte](nil, m.tensor[shape])
	m.check(shape, asRead(err))
	words, size := int64(m.matrix.width), twoIntegers(b)
	fits := func(bits int) bool {
		return size[1] >= 0 && size[1] <= words*32 && size[1] <= math.MaxInt && (size[1]*int64(bits)+31)/32 == words
	}
	if m.bits == 0 {
		possible := slices.DeleteFunc(slices.Clone(m.layout.sizes), func(bits int) bool { return !fits(bits) })
		if len(possible) > 1 {
			m.fail(values, "its values have %d or %d bits; no config.json specifies which", possible[0], possible[1])
		}
		m.bits = append(possible, 0)[0]
	}
	if size[0] != int64(m.matrix.lines) || m.bits == 0 || !fits(m.bits) {
		m.fail(shape, "%s at %d bits does not fill %d rows of %d words", shapetext.Of(size[:]), m.bits, m.matrix.lines, words)
	}
	m.matrix.width = int(size[1])
}

// readShapes reads the stored shapes of all modules into memory. It reads them together, because
// neighbors in a file then take one read. If that fails, each module reads its own shape, and
// returns the error.
func readShapes(modules []*module) {
	modules = slices.DeleteFunc(slices.Clone(modules), func(m *module) bool { return !m.has(shape) })
	stored := make([]safetensors.Tensor, len(modules))
	for i, m := range modules {
		stored[i], _ = m.tensor[shape].Bitcast(u8) // never fails for integers
	}
	all, _ := safetensors.Concat(0, stored...) // fails only if there are no shapes
	b, err := safetensors.Append[byte](nil, all)
	if err != nil {
		return
	}
	for i, m := range modules {
		n := stored[i].Len()
		m.tensor[shape], _ = safetensors.NewTensor(u8, []int{n}, b[:n])
		b = b[n:]
	}
}

// twoIntegers returns the two integers, of 64 or of 32 bits, in the bytes of a tensor.
func twoIntegers(b []byte) []int64 {
	if len(b) == 8 {
		return []int64{int64(int32(binary.LittleEndian.Uint32(b))), int64(int32(binary.LittleEndian.Uint32(b[4:])))}
	}
	return []int64{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
}

// layState is the lay func for codes that are packed in one sequence, across all rows. The shape of
// the result is in the JSON of bitsandbytes. layState keeps that JSON in m.state, with the keys
// that scaleElements needs.
func layState(m *module) {
	s := readSection(fmt.Sprintf("tensor %s: %s: ", quote(m.name(state)), m.layout.name), m.tensor[state])
	kind := s.word("quant_type", "nf4", "fp4")
	m.state, m.shape = s, take[[]int](s, "shape")
	s.end("dtype nested_dtype blocksize nested_blocksize nested_offset")
	if !strings.HasSuffix(m.name(state), kind) {
		m.fail(state, "quant_type is %s", kind)
	}
	bytes := m.must(values)(m.tensor[values].Bitcast(u8))
	all, err := safetensors.NewTensorAt(u8, m.shape, m.matrix) // never read; its size in bytes is the number of codes
	stored, n := bytes.Len(), all.Size()
	if err != nil || (n+1)/2 != int64(stored) || n > math.MaxInt || stored == 0 || len(m.shape) == 0 {
		m.fail(state, "shape %s does not fill %s", cut(shapetext.Of(m.shape)), shapetext.Count(stored, "byte"))
	}
	m.matrix.values.stored = m.must(values)(bytes.Reshape(1, stored))
	m.matrix.values.numbers = m.readTable(codebook, 16)
	m.matrix.lines, m.matrix.width = 1, int(n)
}
