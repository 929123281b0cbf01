package quant

import (
	"encoding/binary"
	"io"
	"iter"
	"math"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A quantizer quantises one matrix, in bands of rows.
type quantizer struct {
	preset
	scheme        Scheme
	source        safetensors.Tensor
	rows, columns int
	global        *globalScale // of NVFP4
}

// bands returns the bytes of the values, or of the scales.
func (q *quantizer) bands(scales bool) *bands {
	b := &bands{q: q, scales: scales}
	perRow := cdiv(q.columns, q.width)
	switch {
	case !scales:
		b.line, b.lines = q.columns/(8/q.bits), q.height
	case q.scheme == NVFP4 || q.scheme == MXFP4:
		b.line, b.lines = perRow, 1
	default:
		b.line, b.lines = perRow*q.source.DType().Bits()/8, 1
	}
	// A band has whole blocks, and about as many elements as stay in the cache.
	b.rows = q.height * max(1, tile*4/q.columns/q.height)
	return b
}

// bands are the bytes of a tensor that is computed in bands of rows of the source. It is
// an io.ReaderAt and a RangeReader, which gets larger reads.
type bands struct {
	q      *quantizer
	scales bool
	rows   int // of the source, in a band
	line   int // bytes of a line of the result
	lines  int // of the result, in the rows of a block: the height of a block, or 1 for scales
}

func (b *bands) ReadAt(p []byte, off int64) (int, error) { return new(band).read(b, p, off) }

// ReadRanges computes a band once for ranges that follow one another in it, such as a
// part of each of its rows.
func (b *bands) ReadRanges(ranges iter.Seq2[int64, []byte]) error {
	var last band
	for off, p := range ranges {
		if _, err := last.read(b, p, off); err != nil {
			return err
		}
	}
	return nil
}

// A band is the one that was computed last.
type band struct {
	number int64
	bytes  []byte // nil before the first
}

func (last *band) read(b *bands, p []byte, off int64) (n int, err error) {
	size := int64(b.rows/b.q.height*b.lines) * int64(b.line) // bytes of a band
	for n < len(p) {
		number, skip := (off+int64(n))/size, (off+int64(n))%size
		if last.bytes == nil || last.number != number {
			first := int(number) * b.rows
			last.number = number
			if last.bytes, err = b.q.band(first, min(first+b.rows, b.q.rows), b.scales); err != nil {
				return n, prefix.Strip(err)
			}
		}
		copied := copy(p[n:], last.bytes[skip:])
		if copied == 0 {
			return n, io.ErrUnexpectedEOF
		}
		n += copied
	}
	return n, nil
}

// band returns the bytes of the values of some rows, or of their scales. The rows start
// with a block.
func (q *quantizer) band(first, end int, scales bool) ([]byte, error) {
	t, err := q.source.Slice(safetensors.Span(first, end))
	if err != nil {
		return nil, err
	}
	x, err := safetensors.Append[float32](nil, t)
	if err != nil {
		return nil, err
	}
	s := q.magnitudes(x)
	global := float32(1)
	if q.global != nil {
		if global, err = q.global.scale(); err != nil {
			return nil, err
		}
	}
	exponents := q.makeScales(s, global)
	if scales {
		switch q.scheme {
		case MXFP4:
			return exponents, nil
		case NVFP4:
			return narrow(s, float.E4M3), nil
		}
		return narrow(s, formatOf(q.source.DType())), nil
	}
	if q.scheme == NVFP4 {
		for i := range s {
			s[i] /= global
		}
	}
	q.divide(x, s)
	switch {
	case q.bits == 8 && q.reach == 448:
		return narrow(x, float.E4M3), nil
	case q.reach == 6:
		return packE2M1(x), nil
	}
	return packIntegers(x, q.bits), nil
}

// formats of a dtype that a target may have.
func formatOf(d safetensors.DType) float.Format {
	switch d {
	case safetensors.BF16:
		return float.BF16
	case safetensors.F16:
		return float.F16
	}
	return float.F32
}

// magnitudes returns the largest magnitude in each block of x, by rows of blocks.
func (q *quantizer) magnitudes(x []float32) []float32 {
	perRow := cdiv(q.columns, q.width)
	s := make([]float32, cdiv(len(x)/q.columns, q.height)*perRow)
	for r := 0; len(x) > 0; r++ {
		row := s[r/q.height*perRow:][:perRow]
		for g := range row {
			n := min(q.width, q.columns-g*q.width)
			row[g] = magnitude(row[g], x[g*q.width:][:n])
		}
		x = x[q.columns:]
	}
	return s
}

// magnitude returns the largest magnitude of x and most, NaN if one is NaN.
func magnitude(most float32, x []float32) float32 {
	bits := math.Float32bits(most)
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&(1<<31-1)) // magnitudes are ordered as their bits, NaNs last
	}
	return math.Float32frombits(bits)
}

// makeScales turns the largest magnitudes into scales, as calculate_qparams of
// compressed-tensors does in the arithmetic of the dtype. For MXFP4 it returns the
// exponents, too.
func (q *quantizer) makeScales(s []float32, global float32) (exponents []byte) {
	format := formatOf(q.source.DType())
	if q.scheme == MXFP4 {
		exponents = make([]byte, len(s))
		for i, most := range s {
			s[i], exponents[i] = powerOfTwo(most, format)
		}
		return exponents
	}
	for i := range s {
		s[i] /= q.reach
	}
	s = rounded(s, format)
	smallest := map[float.Format]float32{float.BF16: 1.0 / (1 << 7), float.F16: 1.0 / (1 << 10), float.F32: 1.0 / (1 << 23)}[format]
	if q.scheme == NVFP4 {
		for i := range s {
			s[i] = min(global*s[i], 448)
		}
		rounded(s, float.E4M3)
		smallest = 0.125
	}
	for i := range s {
		if s[i] == 0 {
			s[i] = smallest
		}
	}
	return nil
}

// maxExponent is that of the largest power of two by which 6, the largest number of E2M1,
// is a float32.
const maxExponent = 125 + 127

// powerOfTwo returns the scale of a group of MXFP4, and its exponent: that of the
// largest magnitude, rounded up if E2M1 would round it up, less that of 4, but at most
// maxExponent. It is NaN for a group that is not finite.
func powerOfTwo(most float32, format float.Format) (float32, byte) {
	if format == float.F16 {
		if most < 0.75*0x1p-14 {
			return 1, 127 // the power is no number of the dtype, and 1 stands for it
		}
		most = max(most, 0x1p-14)
	}
	bits := math.Float32bits(most)
	if bits >= 255<<23 { // infinite, or NaN
		return float32(math.NaN()), 255
	}
	e := min(max(0, int(bits+1<<21)>>23-2), maxExponent)
	return float32(math.Ldexp(1, e-127)), byte(e)
}

// divide sets x to x divided by the scale of its block, in the arithmetic of the dtype.
// Of NVFP4, that is float32.
func (q *quantizer) divide(x, s []float32) {
	perRow := cdiv(q.columns, q.width)
	for r := range len(x) / q.columns {
		row := x[r*q.columns:][:q.columns]
		for g, scale := range s[r/q.height*perRow:][:perRow] {
			part := row[g*q.width : min(g*q.width+q.width, q.columns)]
			for i := range part {
				part[i] /= scale
			}
		}
	}
	if q.scheme != NVFP4 {
		rounded(x, formatOf(q.source.DType()))
	}
}

// narrow returns numbers in another format.
func narrow(x []float32, format float.Format) []byte {
	b := make([]byte, len(x)*format.Bits()/8)
	wide := mem.BytesOf(x)
	if unit := mem.SwappedUnit[float32](); unit > 1 {
		mem.Swap(wide, unit)
	}
	float.Convert(b, format, wide, float.F32, false)
	return b
}

// rounded rounds x to numbers of a format, and returns it.
func rounded(x []float32, format float.Format) []float32 {
	if format != float.F32 {
		b := narrow(x, format)
		wide := mem.BytesOf(x)
		float.Convert(wide, float.F32, b, format, false)
		if unit := mem.SwappedUnit[float32](); unit > 1 {
			mem.Swap(wide, unit)
		}
	}
	return x
}

// packE2M1 rounds pairs of numbers to E2M1, the first of a pair into the low bits.
func packE2M1(x []float32) []byte {
	b := make([]byte, len(x)/2)
	for i := range b {
		b[i] = codeE2M1(x[2*i]) | codeE2M1(x[2*i+1])<<4
	}
	return b
}

// codeE2M1 rounds to the nearest, ties to even. Zero has no sign of its own; a number
// that rounds to zero keeps it.
func codeE2M1(v float32) byte {
	var sign byte
	if v < 0 {
		v, sign = -v, 8
	}
	switch {
	case v <= 0.25:
		return sign
	case v < 0.75:
		return sign | 1
	case v <= 1.25:
		return sign | 2
	case v < 1.75:
		return sign | 3
	case v <= 2.5:
		return sign | 4
	case v < 3.5:
		return sign | 5
	case v <= 5:
		return sign | 6
	}
	return sign | 7
}

// packIntegers rounds numbers to integers, ties to even, and packs them with half of
// their range added.
func packIntegers(x []float32, bits int) []byte {
	half := float64(int(1) << (bits - 1))
	b := make([]byte, len(x)*bits/8)
	for i, v := range x {
		code := byte(int(math.RoundToEven(min(max(float64(v), -half), half-1)) + half))
		b[i*bits/8] |= code << (i * bits % 8)
	}
	return b
}

// globalScale is the scale of scales of NVFP4: that of the largest magnitude of tensors. It is
// the io.ReaderAt of its only element.
type globalScale struct {
	of    []safetensors.Tensor
	value once[float32]
}

func (g *globalScale) scale() (float32, error) { return g.value.get(g.read) }

func (g *globalScale) read() (float32, error) {
	var most float32
	for _, t := range g.of {
		rows := max(1, maxBlock/4/t.Shape()[1])
		var x []float32
		for r := 0; r < t.Shape()[0]; r += rows {
			part, err := t.Slice(safetensors.Span(r, min(r+rows, t.Shape()[0])))
			if err != nil {
				return 0, err
			}
			if x, err = safetensors.Append(x[:0], part); err != nil {
				return 0, err
			}
			most = magnitude(most, x)
		}
	}
	format := formatOf(g.of[0].DType())
	tiny := map[float.Format]float32{float.BF16: 0x1p-126, float.F16: 0x1p-14, float.F32: 0x1p-126}[format]
	reciprocal := rounded([]float32{1 / max(most, tiny)}, format)[0] // PyTorch divides a number by a tensor in two steps
	scale := rounded([]float32{reciprocal * (448 * 6)}, format)[0]
	if math.IsInf(float64(scale), 0) || scale != scale {
		scale = 1
	}
	return scale, nil
}

func (g *globalScale) ReadAt(p []byte, off int64) (int, error) {
	v, err := g.scale()
	if err != nil {
		return 0, prefix.Strip(err)
	}
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
	return copy(p, b[off:]), nil
}
