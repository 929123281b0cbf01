package compare

import (
	"fmt"
	"math"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/internal/mem"
)

// A memory holds a block of each tensor.
type memory struct {
	bytes    [2][]byte
	elements [2]elements
	floats   [2][]float32 // used by f32
	finite   bool         // whether all elements of the second tensor are finite, as far as squares could tell

	picked [2][]byte // the elements that pick has found, and eight more bytes
	places []int32   // indices in the block of those elements
}

// exceeds reports whether difference a is larger than difference b. NaN is larger than any number.
func exceeds(a, b float64) bool { return !(a <= b) && !math.IsNaN(b) }

// Two values of the index of an element in a block.
const (
	nowhere  = -1 // the block has no such element
	anywhere = -2 // the block has one, and pair.find returns its index
)

// compare compares the n elements in m. at is the index of the element with the largest difference
// beyond the tolerance, or nowhere or anywhere.
func (p *pair) compare(n int64, m *memory) (d Difference, at int64, err error) {
	exact := p.same && p.tolerance == Tolerance{} // whether elements are equal only if their bits are
	dtype := p.both[0].DType()
	if exact {
		if d, ok := m.differ(dtype, n); ok {
			if d.MaxAbsolute == 0 {
				return d, nowhere, nil
			}
			return d, anywhere, nil
		}
	}
	data, picked := m.bytes, p.same && dtype.Bits()%8 == 0
	if picked {
		n = m.pick(dtype.Bits() / 8)
		data = [2][]byte{m.picked[0][:n*int64(dtype.Bits())/8], m.picked[1][:n*int64(dtype.Bits())/8]}
	}
	if err := p.convert(n, m, data); err != nil {
		return d, nowhere, err
	}
	d, at = p.compareNumbers(int(n), m.elements[0], m.elements[1], exact, picked)
	if picked && at != nowhere {
		at = int64(m.places[at])
	}
	return d, at, nil
}

// differ compares the n elements in m, of one dtype, without a tolerance. It does not set At. ok is
// false if it cannot: if this platform or the dtype has no vectors, or if a difference is not finite.
// squares must have been called.
func (m *memory) differ(dtype safetensors.DType, n int64) (d Difference, ok bool) {
	switch {
	case !vectors || !dtype.IsFloat() || dtype.Bits() > 32:
		return d, false
	case dtype == safetensors.BF16 || dtype == safetensors.F32:
		return differ(dtype, m.bytes[0], m.bytes[1])
	case !m.finite: // NaNs of other bits may be the same NaN in F32
		return d, false
	}
	a, err := m.f32(0, dtype, n)
	if err != nil {
		return d, false
	}
	b, err := m.f32(1, dtype, n)
	if err != nil {
		return d, false
	}
	return differ(safetensors.F32, a, b)
}

// f32 returns the n elements of block k as F32, which has all finite numbers of smaller floats, and
// both zeros.
func (m *memory) f32(k int, dtype safetensors.DType, n int64) ([]byte, error) {
	if dtype == safetensors.F32 {
		return m.bytes[k], nil
	}
	t, err := safetensors.NewTensor(dtype, []int{int(n)}, m.bytes[k])
	if err == nil {
		m.floats[k], err = safetensors.Append(m.floats[k][:0], t)
	}
	return mem.BytesOf(m.floats[k]), err
}

// convert makes numbers of the n elements in data.
func (p *pair) convert(n int64, m *memory, data [2][]byte) (err error) {
	for k, t := range p.both {
		if m.elements[k], err = elementsOf(t.DType(), n, data[k], m.elements[k].numbers); err != nil {
			return err
		}
	}
	return nil
}

// find returns the index of the first of the n elements in m whose difference is absolute.
func (p *pair) find(n int64, m *memory, absolute float64) (int64, error) {
	if err := p.convert(n, m, m.bytes); err != nil {
		return nowhere, err
	}
	u, v := m.elements[0].numbers, m.elements[1].numbers
	for i := range u {
		if math.Abs(u[i]-v[i]) == absolute {
			return int64(i), nil
		}
	}
	return nowhere, fmt.Errorf("no element of the block differs by %v", absolute)
}

// compareNumbers compares the n elements in u with those in v. exact says that elements are equal
// only if their bits are, and picked that the bits of each pair differ.
func (p *pair) compareNumbers(n int, u, v elements, exact, picked bool) (d Difference, at int64) {
	if u.real() && v.real() && (picked || !exact) {
		if d, at = p.compareReal(u.numbers[:n], v.numbers[:n]); !math.IsNaN(d.Squares) {
			if exact {
				d.Different = int64(n)
			}
			return d, at
		}
	}
	d, at = Difference{}, nowhere
	for i := range n {
		a, aImaginary, aRest := u.at(i)
		b, bImaginary, bRest := v.at(i)
		absolute, size := apart(a, b, aRest-bRest), math.Abs(b)
		if u.complex || v.complex {
			upright := apart(aImaginary, bImaginary, 0)
			absolute, size = min(math.Hypot(absolute, upright), math.MaxFloat64), math.Hypot(b, bImaginary)
		}
		equal := absolute == 0 || absolute <= p.tolerance.Absolute+p.tolerance.Relative*size
		if exact { // dtypes whose elements are not picked have less than 8 bits: they have two zeros, but no NaN
			equal = equal && !picked && math.Signbit(a) == math.Signbit(b)
		}
		if !equal {
			d.Different++
		}
		if absolute == 0 {
			continue
		}
		d.Squares += absolute * absolute
		if equal {
			continue
		}
		if at < 0 || exceeds(absolute, d.MaxAbsolute) {
			d.MaxAbsolute, at = absolute, int64(i)
		}
		if size != 0 || math.IsNaN(absolute) {
			d.MaxRelative = max(d.MaxRelative, absolute/size) // max returns NaN if one of them is NaN
		}
	}
	return d, at
}

// compareReal does the same as compareNumbers for real numbers without rests, in less time. Two
// zeros are equal, whatever their signs. If a difference is not finite, Squares is NaN and nothing
// else counts.
func (p *pair) compareReal(u, v []float64) (d Difference, at int64) {
	at = nowhere
	for i, b := range v[:len(u)] {
		absolute, size := math.Abs(u[i]-b), math.Abs(b)
		if !(absolute <= math.MaxFloat64) {
			d.Squares = math.NaN()
			return d, at
		}
		d.Squares += absolute * absolute
		if absolute == 0 || absolute <= p.tolerance.Absolute+p.tolerance.Relative*size {
			continue
		}
		d.Different++
		if absolute > d.MaxAbsolute {
			d.MaxAbsolute, at = absolute, int64(i)
		}
		if relative := absolute / size; relative > d.MaxRelative && size != 0 {
			d.MaxRelative = relative
		}
	}
	return d, at
}

// apart returns |a-b+rest|, but at most the largest float64. If a or b is not finite, it returns 0 for
// two NaNs and for equal infinities, and NaN otherwise.
func apart(a, b, rest float64) float64 {
	if absolute := math.Abs(a - b + rest); absolute <= math.MaxFloat64 {
		return absolute
	}
	return apartBeyond(a, b)
}

// apartBeyond returns the same as apart for a and b whose difference is not finite.
func apartBeyond(a, b float64) float64 {
	finite := func(x float64) bool { return math.Abs(x) <= math.MaxFloat64 }
	switch {
	case math.IsNaN(a) && math.IsNaN(b), a == b: // in the latter case, equal infinities
		return 0
	case finite(a) && finite(b):
		return math.MaxFloat64
	}
	return math.NaN()
}

// An elements holds some elements as numbers. A float64 represents integers only up to 2^53. So an
// integer of 64 bits is the sum of its number and its rest.
type elements struct {
	numbers []float64 // two for each element if complex is true
	complex bool      // whether the elements are complex
	rests   []float64 // nil unless the elements are integers of 64 bits
}

// real reports whether the numbers are the elements.
func (e *elements) real() bool { return !e.complex && e.rests == nil }

// at returns the real part, the imaginary part and the rest of element i.
func (e *elements) at(i int) (re, im, rest float64) {
	switch {
	case e.complex:
		return e.numbers[2*i], e.numbers[2*i+1], 0
	case e.rests != nil:
		return e.numbers[i], 0, e.rests[i]
	}
	return e.numbers[i], 0, 0
}

// elementsOf returns the n elements of a dtype in data. The numbers use the memory of buf if it is
// large enough.
func elementsOf(d safetensors.DType, n int64, data []byte, buf []float64) (e elements, err error) {
	t, err := safetensors.NewTensor(d, []int{int(n)}, data)
	if err != nil {
		return e, err
	}
	switch d {
	case safetensors.C64:
		e.complex = true
	case safetensors.I64:
		e.rests, err = restsOf[int64](t)
	case safetensors.U64:
		e.rests, err = restsOf[uint64](t)
	}
	if err == nil {
		e.numbers, err = numbers.Append(buf[:0], t)
	}
	return e, err
}

// restsOf returns the difference between each integer and its float64. Each step of the computation
// is exact.
func restsOf[T int64 | uint64](t safetensors.Tensor) ([]float64, error) {
	const low = 1<<11 - 1
	all, err := safetensors.Append([]T(nil), t)
	rests := make([]float64, len(all))
	for i, x := range all {
		rests[i] = float64(x&^low) - float64(x) + float64(x&low)
	}
	return rests, err
}
