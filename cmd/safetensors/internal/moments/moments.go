// Package moments describes float32 in one look, with assembly.
package moments

import (
	"encoding/binary"
	"math"
)

// Moments describe some numbers. Min, Max and the sums are those of the finite ones.
// The sums are of the differences to Shift, one of the numbers, so that they are exact
// enough where the numbers are close to each other and far from zero.
type Moments struct {
	Finite, Zeros, NaN, Inf int64
	Min, Max                float32 // +Inf and -Inf if no number is finite; -0 is less than 0
	Shift                   float64
	Sum, Squares            float64
}

// Of returns the moments of the little-endian float32 in b, whose length is a multiple
// of 4 and less than 8 GiB. They are the same on every processor, to the bit.
func Of(b []byte) Moments {
	shift := firstFinite(b)
	l := lanes{least: math.MaxInt32, most: math.MinInt32}
	l.add(b[l.addVector(b, shift):], shift)
	m := Moments{
		Finite: int64(len(b)/4) - l.nan - l.inf,
		Zeros:  l.zeros, NaN: l.nan, Inf: l.inf,
		Min: float32(math.Inf(1)), Max: float32(math.Inf(-1)),
		Shift:   float64(shift),
		Sum:     (l.sum[0] + l.sum[1]) + (l.sum[2] + l.sum[3]),
		Squares: (l.squares[0] + l.squares[1]) + (l.squares[2] + l.squares[3]),
	}
	if m.Finite > 0 {
		m.Min, m.Max = fromOrdered(l.least), fromOrdered(l.most)
	}
	return m
}

const infinity = 0x7f800000 // its bits; larger magnitudes are NaN

// firstFinite returns the first finite number, else 0.
func firstFinite(b []byte) float32 {
	for ; len(b) >= 4; b = b[4:] {
		if bits := binary.LittleEndian.Uint32(b); bits&infinity != infinity {
			return math.Float32frombits(bits)
		}
	}
	return 0
}

// lanes are the state of a look. Number i is in lane i%4 of the sums: additions that
// wait for each other would take most of the time.
type lanes struct {
	sum, squares    [4]float64
	least, most     int32 // as ordered has them
	zeros, nan, inf int64
}

// ordered returns a number that compares as floats of these bits do, -0 below 0.
func ordered(bits uint32) int32 {
	return int32(bits ^ uint32(int32(bits)>>31)>>1)
}

func fromOrdered(i int32) float32 {
	return math.Float32frombits(uint32(ordered(uint32(i)))) // its own inverse
}

// add looks at the numbers in b, the first of them in lane 0. Those that are not
// finite count as shift in everything but their number.
func (l *lanes) add(b []byte, shift float32) {
	least, most, wide := l.least, l.most, float64(shift)
	sum0, sum1, sum2, sum3 := l.sum[0], l.sum[1], l.sum[2], l.sum[3]
	squares0, squares1, squares2, squares3 := l.squares[0], l.squares[1], l.squares[2], l.squares[3]
	for ; len(b) >= 16; b = b[16:] {
		low, high := binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		x0, x1, x2, x3 := uint32(low), uint32(low>>32), uint32(high), uint32(high>>32)
		if rare(x0) || rare(x1) || rare(x2) || rare(x3) {
			x0, x1, x2, x3 = l.replace(x0, shift), l.replace(x1, shift), l.replace(x2, shift), l.replace(x3, shift)
		}
		least = min(least, ordered(x0), ordered(x1), ordered(x2), ordered(x3))
		most = max(most, ordered(x0), ordered(x1), ordered(x2), ordered(x3))
		d0, d1 := float64(math.Float32frombits(x0))-wide, float64(math.Float32frombits(x1))-wide
		d2, d3 := float64(math.Float32frombits(x2))-wide, float64(math.Float32frombits(x3))-wide
		sum0, sum1, sum2, sum3 = sum0+d0, sum1+d1, sum2+d2, sum3+d3
		squares0 += float64(d0 * d0) // the conversion forbids a fused operation
		squares1 += float64(d1 * d1)
		squares2 += float64(d2 * d2)
		squares3 += float64(d3 * d3)
	}
	l.least, l.most = least, most
	l.sum = [4]float64{sum0, sum1, sum2, sum3}
	l.squares = [4]float64{squares0, squares1, squares2, squares3}
	for i := 0; len(b) >= 4; i, b = i+1, b[4:] {
		x := l.replace(binary.LittleEndian.Uint32(b), shift)
		l.least, l.most = min(l.least, ordered(x)), max(l.most, ordered(x))
		d := float64(math.Float32frombits(x)) - wide
		l.sum[i] += d
		l.squares[i] += float64(d * d)
	}
}

// rare reports whether bits are those of a zero, an infinity or a NaN.
func rare(bits uint32) bool { return bits<<1-1 >= infinity<<1-1 }

// replace counts a number that is rare, and returns shift for one that is not finite.
func (l *lanes) replace(bits uint32, shift float32) uint32 {
	switch magnitude := bits &^ (1 << 31); {
	case magnitude == 0:
		l.zeros++
		return bits
	case magnitude < infinity:
		return bits
	case magnitude == infinity:
		l.inf++
	default:
		l.nan++
	}
	return math.Float32bits(shift)
}
