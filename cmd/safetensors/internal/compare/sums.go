package compare

import (
	"encoding/binary"
	"math"

	"github.com/gosafetensors/safetensors"
)

// squares returns the sum of the squares of the finite elements in the block of the second tensor,
// m.bytes[1], which holds n elements of dtype d. It sums BF16 and F32, the dtypes of most weights,
// directly from their bytes, unless that sum is not finite.
func (m *memory) squares(d safetensors.DType, n int64) (float64, error) {
	data, sum := m.bytes[1], 0.0
	switch d {
	case safetensors.BF16:
		sum = squaresBF16(data)
	case safetensors.F32:
		sum = squaresF32(data)
	default:
		sum = math.NaN()
	}
	if sum <= math.MaxFloat64 {
		return sum, nil
	}
	e, err := elementsOf(d, n, data, m.elements[1].numbers)
	m.elements[1].numbers, sum = e.numbers, 0
	for _, x := range e.numbers {
		if math.Abs(x) <= math.MaxFloat64 {
			sum += x * x
		}
	}
	return sum, err
}

// sums are four sums of squares, so that an addition need not wait for the one before it.
type sums [4]float64

// add adds the squares of four F32 elements, given by their bits.
func (s *sums) add(a, b, c, d uint32) {
	w, x := float64(math.Float32frombits(a)), float64(math.Float32frombits(b))
	y, z := float64(math.Float32frombits(c)), float64(math.Float32frombits(d))
	s[0] += w * w
	s[1] += x * x
	s[2] += y * y
	s[3] += z * z
}

func (s *sums) total() float64 { return s[0] + s[1] + s[2] + s[3] }

// squaresBF16 returns the sum of the squares of BF16 elements.
func squaresBF16(data []byte) float64 {
	var s sums
	for ; len(data) > 0; data = data[min(8, len(data)):] {
		x := word(data)
		low, high := uint32(x), uint32(x>>32)
		s.add(low<<16, low&^0xffff, high<<16, high&^0xffff)
	}
	return s.total()
}

// squaresF32 returns the sum of the squares of F32 elements.
func squaresF32(data []byte) float64 {
	var s sums
	for ; len(data) >= 16; data = data[16:] {
		x, y := binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[8:])
		s.add(uint32(x), uint32(x>>32), uint32(y), uint32(y>>32))
	}
	for ; len(data) > 0; data = data[4:] {
		s.add(binary.LittleEndian.Uint32(data), 0, 0, 0)
	}
	return s.total()
}
