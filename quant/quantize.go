package quant

import (
	"iter"
	"math"
	"sync"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/dequant"
	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/gosafetensors/safetensors/internal/mem"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A quantizer computes the bytes of the values or of the scales of a matrix, in bands of rows. It
// is the RangeReader of the result, so that it receives large reads.
type quantizer struct {
	preset
	source        safetensors.Tensor
	in, out       arithmetic // constants of the dtypes of the source and of the scales
	rows, columns int
	global        *once[float32] // global scale, which scales the scales; it is 1 except with NVFP4

	result role  // whether it computes values or scales
	step   int   // number of rows of a band
	size   int64 // size of a band in bytes
}

// An arithmetic holds constants of the dtype of a target, or of the dtype of its scales.
type arithmetic struct {
	format float.Format
	eps    float32 // scale of a block of zeros, torch.finfo(dtype).eps
	tiny   float32 // the smallest normal number
}

var arithmetics = map[safetensors.DType]arithmetic{
	bf16: {float.BF16, 0x1p-7, 0x1p-126},
	f16:  {float.F16, 0x1p-10, 0x1p-14},
	f32:  {float.F32, 0x1p-23, 0x1p-126},

	e4m3: {float.E4M3, 0x1p-3, 0x1p-6},
}

// bands returns the tensor of values or scales. It has a line of width elements for every height
// rows of the source.
func (q quantizer) bands(result role, d safetensors.DType, height, width int) (safetensors.Tensor, error) {
	// A band consists of whole blocks, and of about as many elements as fit the cache of a
	// processor.
	q.result, q.step = result, min(q.rows, q.height*max(1, tile*4/q.columns/q.height))
	q.size = int64(cdiv(q.step, height)) * int64(width) * int64(d.Bits()/8)
	return safetensors.NewTensorAt(d, []int{cdiv(q.rows, height), width}, &q)
}

func (q *quantizer) ReadAt(p []byte, off int64) (int, error) { return readRange(q, p, off) }

// ReadRanges computes each band once for successive ranges in it, such as a part of each of its
// rows.
func (q *quantizer) ReadRanges(ranges iter.Seq2[int64, []byte]) (err error) {
	numbers := bandNumbers.Get().(*[]float32)
	defer bandNumbers.Put(numbers)
	var band []byte
	last := int64(-1) // index of the band in memory, or -1
	for off, p := range ranges {
		for len(p) > 0 {
			if number := off / q.size; number != last {
				first := int(number) * q.step
				if band, err = q.compute(numbers, first, min(first+q.step, q.rows)); err != nil {
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

// bandNumbers holds slices for the numbers of a band, for reuse. If each band allocated one, the
// garbage collector would take a tenth of the time of a job that uses little other memory.
var bandNumbers = sync.Pool{New: func() any { return new([]float32) }}

// compute returns the bytes for the rows from first up to end. first must be the first row of a
// block. It reads the elements of these rows into *numbers, whose memory it reuses.
func (q *quantizer) compute(numbers *[]float32, first, end int) ([]byte, error) {
	x, err := read(*numbers, q.source, 0, span{first, end}, span{0, q.columns})
	if err != nil {
		return nil, err
	}
	*numbers = x
	global, err := q.global.get()
	if err != nil {
		return nil, err
	}
	s := make([]float32, cdiv(end-first, q.height)*cdiv(q.columns, q.width))
	q.eachBlock(x, s, func(block []float32, most *float32) { *most = magnitude(*most, block) })
	q.makeScales(s, global)
	switch {
	case q.result == scales && q.scale == u8:
		return packPowers(s), nil
	case q.result == scales:
		return narrow(s, q.out.format), nil
	}
	q.eachBlock(x, s, func(block []float32, scale *float32) {
		by := *scale / global
		for i := range block {
			block[i] /= by
		}
	})
	if q.scale != e4m3 { // compressed-tensors computes in float32 if scales are E4M3, otherwise in the dtype of the source
		roundTo(x, q.in.format)
	}
	return q.pack(x), nil
}

// eachBlock calls f for each row of each block, with the elements of x that lie in that row of the
// block, and a pointer to the element of s for the block.
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

// magnitude returns the largest magnitude among the elements of x and the number most, or NaN if
// one of these is NaN.
func magnitude(most float32, x []float32) float32 {
	bits := math.Float32bits(most)
	for _, v := range x {
		bits = max(bits, math.Float32bits(v)&(1<<31-1)) // magnitudes are ordered like their bits, with NaNs last
	}
	return math.Float32frombits(bits)
}

// makeScales turns the largest magnitudes of blocks into scales, as calculate_qparams of
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
	roundTo(s, q.in.format)
	dequant.Mul(s, []float32{global}, len(s), 0)
	roundTo(s, q.out.format) // numbers beyond the largest number of E4M3 become that number
	for i := range s {
		if s[i] == 0 {
			s[i] = q.out.eps
		}
	}
}

// powerOfTwo returns the scale of a group of MXFP4 whose largest magnitude is most. It takes the
// largest power of two that is not above most, or the next power if E2M1 would round most up to
// that one, and divides it by 4. The scale is limited to the largest power of two whose product
// with 6, the largest number of E2M1, is a float32. If most is infinite or NaN, the scale is NaN.
func (a arithmetic) powerOfTwo(most float32) float32 {
	if a.format == float.F16 {
		if most < 0.75*a.tiny {
			return 1 // F16 cannot represent this power of two, so the scale is 1 instead
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

// narrow returns the bytes of numbers in another format. It may modify x.
func narrow(x []float32, format float.Format) []byte {
	b := make([]byte, len(x)*format.Bits()/8)
	float.Convert(b, format, inOrder(x), float.F32, false)
	return b
}

// roundTo rounds x, in place, to numbers of a format.
func roundTo(x []float32, format float.Format) {
	if format != float.F32 {
		b := narrow(x, format)
		float.Convert(mem.BytesOf(x), float.F32, b, format, false)
		inOrder(x)
	}
}

func packE4M3(x []float32) []byte { return narrow(x, float.E4M3) }

// packPowers packs powers of two as E8M0, which stores their exponents.
var packPowers = packCodes(8, func(v float64) byte { return byte(math.Float32bits(float32(v)) >> 23) })

// codeE2M1 rounds to the nearest number of E2M1, with ties to even. Zero becomes +0; a number that
// rounds to zero keeps its sign.
func codeE2M1(v float64) byte {
	var sign byte
	if v < 0 {
		v, sign = -v, 8
	}
	if v < 6 { // the numbers of E2M1 are 0.5 apart up to 2, 1 apart up to 4, then 2 apart
		return sign | byte(math.RoundToEven(min(2*v, v+2, v/2+4)))
	}
	return sign | 7
}

// codeInt4 and codeInt8 round to the nearest integer, with ties to even, and add half of the range,
// so that codes are not negative.
func codeInt4(v float64) byte { return byte(int(math.RoundToEven(min(max(v, -8), 7)) + 8)) }
func codeInt8(v float64) byte { return byte(int(math.RoundToEven(min(max(v, -128), 127)) + 128)) }

// globalScale returns the factor that scales the scales. With NVFP4 it follows from the largest
// magnitude in the tensors; otherwise it is 1.
func (p preset) globalScale(tensors []safetensors.Tensor) (_ float32, err error) {
	if p.scale != e4m3 {
		return 1, nil
	}
	var most float32
	var x []float32
	for _, t := range tensors {
		shape := t.Shape()
		rows := max(1, maxBlock/4/shape[1])
		for r := 0; r < shape[0]; r += rows {
			if x, err = read(x, t, 0, span{r, min(r+rows, shape[0])}, span{0, shape[1]}); err != nil {
				return 0, err
			}
			most = magnitude(most, x)
		}
	}
	in := arithmetics[tensors[0].DType()]
	scale := []float32{1 / max(most, in.tiny)}
	roundTo(scale, in.format) // PyTorch divides a number by a tensor in two steps
	scale[0] *= 448 * 6
	roundTo(scale, in.format)
	if math.IsInf(float64(scale[0]), 0) || scale[0] != scale[0] {
		return 1, nil
	}
	return scale[0], nil
}
