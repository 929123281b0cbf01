package quant

import (
	"iter"
	"math"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A quantizer computes the bytes of the values or of the scales of a matrix, in bands of
// its rows. It is an io.ReaderAt for ranges within them, and a RangeReader, which gets
// larger reads.
type quantizer struct {
	preset
	source        safetensors.Tensor
	in, out       arithmetic // of the source, and of the scales
	rows, columns int
	global        *once[float32] // the scale of scales, which is 1 but with NVFP4

	of   role  // values or scales
	step int   // rows of a band
	size int64 // bytes of a band
}

// An arithmetic is that of a dtype that a target or its scales may have.
type arithmetic struct {
	format float.Format
	eps    float32 // the scale of zeros: torch.finfo(dtype).eps
	tiny   float32 // the smallest normal number
}

var arithmetics = map[safetensors.DType]arithmetic{
	bf16: {float.BF16, 0x1p-7, 0x1p-126},
	f16:  {float.F16, 0x1p-10, 0x1p-14},
	f32:  {float.F32, 0x1p-23, 0x1p-126},

	e4m3: {float.E4M3, 0x1p-3, 0x1p-6},
}

// bands returns the tensor of values or scales: lines of so many elements, each for height rows.
func (q quantizer) bands(of role, d safetensors.DType, height, width int) (safetensors.Tensor, error) {
	// A band has whole blocks, and about as many elements as stay in the cache.
	q.of, q.step = of, min(q.rows, q.height*max(1, tile*4/q.columns/q.height))
	q.size = int64(cdiv(q.step, height)) * int64(width) * int64(d.Bits()/8)
	return safetensors.NewTensorAt(d, []int{cdiv(q.rows, height), width}, &q)
}

func (q *quantizer) ReadAt(p []byte, off int64) (int, error) { return readRange(q, p, off) }

// ReadRanges computes a band once for ranges that follow one another in it, such as a
// part of each of its rows.
func (q *quantizer) ReadRanges(ranges iter.Seq2[int64, []byte]) (err error) {
	var band []byte
	last := int64(-1) // its number
	for off, p := range ranges {
		for len(p) > 0 {
			if number := off / q.size; number != last {
				first := int(number) * q.step
				if band, err = q.compute(first, min(first+q.step, q.rows)); err != nil {
					return prefix.Strip(err)
				}
				last = number
			}
			n := copy(p, band[off%q.size:])
			p = p[n:]
			off += int64(n)
		}
	}
	return nil
}

// compute returns the bytes of some rows, which start with a block.
func (q *quantizer) compute(first, end int) ([]byte, error) {
	x, err := read[float32](nil, q.source, 0, span{first, end}, span{0, q.columns})
	if err != nil {
		return nil, err
	}
	global, err := q.global.get()
	if err != nil {
		return nil, err
	}
	s := make([]float32, cdiv(end-first, q.height)*cdiv(q.columns, q.width))
	q.eachBlock(x, s, func(block []float32, most *float32) { *most = magnitude(*most, block) })
	q.makeScales(s, global)
	switch {
	case q.of == scales && q.scale == u8:
		return packPowers(s), nil
	case q.of == scales:
		return narrow(s, q.out.format), nil
	}
	q.eachBlock(x, s, func(block []float32, scale *float32) {
		by := *scale / global
		for i := range block {
			block[i] /= by
		}
	})
	if q.scale != e4m3 { // with those, the arithmetic is float32, else that of the dtype
		rounded(x, q.in.format)
	}
	return q.pack(x), nil
}

// eachBlock calls f with the part of each row that a block has, and the scale of that.
func (q *quantizer) eachBlock(x, s []float32, f func(block []float32, scale *float32)) {
	perRow := cdiv(q.columns, q.width)
	for r := 0; len(x) > 0; r++ {
		for g := range perRow {
			n := min(q.width, q.columns-g*q.width)
			f(x[:n], &s[r/q.height*perRow+g])
			x = x[n:]
		}
	}
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
// compressed-tensors does in the arithmetic of the dtype.
func (q *quantizer) makeScales(s []float32, global float32) {
	if q.scale == u8 {
		for i, most := range s {
			s[i] = q.in.powerOfTwo(most)
		}
		return
	}
	for i := range s {
		s[i] /= q.reach
	}
	rounded(s, q.in.format)
	dequant.Mul(s, []float32{global}, len(s), 0)
	rounded(s, q.out.format) // a number beyond the largest of E4M3 becomes that
	for i := range s {
		if s[i] == 0 {
			s[i] = q.out.eps
		}
	}
}

// powerOfTwo returns the scale of a group of MXFP4: the power of two of the largest
// magnitude, rounded up if E2M1 would round it up, less that of 4, but at most the largest
// by which 6, the largest number of E2M1, is a float32. It is NaN for a group that is not
// finite.
func (a arithmetic) powerOfTwo(most float32) float32 {
	if a.format == float.F16 {
		if most < 0.75*a.tiny {
			return 1 // the power is no number of the dtype, and 1 stands for it
		}
		most = max(most, a.tiny)
	}
	bits := math.Float32bits(most)
	if bits >= 255<<23 { // infinite, or NaN
		return float32(math.NaN())
	}
	e := int(bits+1<<21)>>23 - 2
	return float32(math.Ldexp(1, min(max(0, e), 252)-127))
}

// narrow returns numbers in another format.
func narrow(x []float32, format float.Format) []byte {
	b := make([]byte, len(x)*format.Bits()/8)
	float.Convert(b, format, inOrder(x), float.F32, false)
	return b
}

// rounded rounds x to numbers of a format.
func rounded(x []float32, format float.Format) {
	if format != float.F32 {
		b := narrow(x, format)
		float.Convert(mem.BytesOf(x), float.F32, b, format, false)
		inOrder(x)
	}
}

func packE4M3(x []float32) []byte { return narrow(x, float.E4M3) }

// packPowers packs the exponents of powers of two, as E8M0 has them.
var packPowers = packCodes(8, func(v float64) byte { return byte(math.Float32bits(float32(v)) >> 23) })

// packCodes returns what packs numbers as codes of a few bits, the first in the low bits of
// a byte.
func packCodes(bits int, code func(v float64) byte) func(x []float32) []byte {
	return func(x []float32) []byte {
		b := make([]byte, len(x)*bits/8)
		for i, v := range x {
			b[i*bits/8] |= code(float64(v)) << (i * bits % 8)
		}
		return b
	}
}

// codeE2M1 rounds to the nearest, ties to even. Zero has no sign of its own; a number
// that rounds to zero keeps it.
func codeE2M1(v float64) byte {
	var sign byte
	if v < 0 {
		v, sign = -v, 8
	}
	if v < 6 { // codes are 0.5 apart up to 2, then 1, then 2
		return sign | byte(math.RoundToEven(min(2*v, v+2, v/2+4)))
	}
	return sign | 7
}

// codeInt4 and codeInt8 round to the nearest, ties to even, and add half of the range.
func codeInt4(v float64) byte { return byte(int(math.RoundToEven(min(max(v, -8), 7)) + 8)) }
func codeInt8(v float64) byte { return byte(int(math.RoundToEven(min(max(v, -128), 127)) + 128)) }

// globalScale returns the scale of scales: with NVFP4 that of the largest magnitude of tensors.
func (p preset) globalScale(of []safetensors.Tensor) (_ float32, err error) {
	if p.scale != e4m3 {
		return 1, nil
	}
	var most float32
	var x []float32
	for _, t := range of {
		shape := t.Shape()
		rows := max(1, maxBlock/4/shape[1])
		for r := 0; r < shape[0]; r += rows {
			if x, err = read(x, t, 0, span{r, min(r+rows, shape[0])}, span{0, shape[1]}); err != nil {
				return 0, err
			}
			most = magnitude(most, x)
		}
	}
	in := arithmetics[of[0].DType()]
	scale := []float32{1 / max(most, in.tiny)}
	rounded(scale, in.format) // PyTorch divides a number by a tensor in two steps
	scale[0] *= 448 * 6
	rounded(scale, in.format)
	if math.IsInf(float64(scale[0]), 0) || scale[0] != scale[0] {
		return 1, nil
	}
	return scale[0], nil
}
