package compare

import (
	"encoding/binary"
	"math"

	"github.com/gosafetensors/safetensors"
)

// squares returns the sum of the squares of the finite elements in the block of the second tensor,
// m.bytes[1], which holds n elements of dtype d. It sums floats of at most 32 bits, the elements of
// most weights, without making a float64 of each, unless that sum is not finite. It sets m.finite.
func (m *memory) squares(d safetensors.DType, n int64) (float64, error) {
	sum := math.NaN()
	switch {
	case d == safetensors.BF16:
		sum = squaresBF16(m.bytes[1])
	case d.IsFloat() && d.Bits() <= 32:
		data, err := m.f32(1, d, n)
		if err != nil {
			return 0, err
		}
		sum = squaresF32(data)
	}
	if m.finite = sum <= math.MaxFloat64; m.finite {
		return sum, nil
	}
	e, err := elementsOf(d, n, m.bytes[1], m.elements[1].numbers)
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

// plainSquaresBF16 returns the sum of the squares of BF16 elements.
func plainSquaresBF16(data []byte) float64 {
	var s sums
	for ; len(data) > 0; data = data[min(8, len(data)):] {
		w := padded(data)
		x := word(w[:])
		low, high := uint32(x), uint32(x>>32)
		s.add(low<<16, low&^0xffff, high<<16, high&^0xffff)
	}
	return s.total()
}

// plainSquaresF32 returns the sum of the squares of F32 elements.
func plainSquaresF32(data []byte) float64 {
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
