package bench

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/gosafetensors/safetensors"
	"github.com/x448/float16"
)

var convertWork = Work{
	Name:  "convert",
	Title: "Convert between dtypes",
	Intro: `From a tensor in memory to a slice of another dtype in memory that is already there.
In cache: 64 Ki elements, on one thread. In memory: the F32 side has 256 MiB; this package shares
the work among the processors there, the others do not. The limits are a memmove, on one thread, that reads
and writes as many bytes together, and a clear that writes as many and reads none.`,
	Unit:  "read and written",
	Chart: "Converted (GB/s read and written; longer is better)",
	run:   runConvert,
}

// A conversion is one pair of dtypes. plain is the loop a user would write.
type conversion struct {
	from, to safetensors.DType
	plain    func(dst, src []byte)
}

var conversions = []conversion{
	{safetensors.F16, safetensors.F32, plainF16},
	{safetensors.BF16, safetensors.F32, plainBF16},
	{safetensors.F8_E4M3, safetensors.F32, plainF8},
	{safetensors.F32, safetensors.F16, plainToF16},
	{safetensors.F32, safetensors.BF16, plainToBF16},
}

func runConvert(b *Bench) error {
	for _, place := range []struct {
		name     string
		elements int
	}{{"in cache", 64 * kiB}, {"in memory", int(b.size(64*miB, 256*kiB))}} {
		for _, c := range conversions {
			if err := b.convertOne(c, place.name, place.elements); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Bench) convertOne(c conversion, place string, elements int) error {
	src := noise(elements * c.from.Bits() / 8)
	dst := make([]byte, elements*c.to.Bits()/8)
	tensor, err := byteTensor(c.from, elements, src)
	if err != nil {
		return err
	}
	if tensor, err = tensor.Convert(c.to); err != nil {
		return err
	}
	traffic := len(src) + len(dst)
	from, to := make([]byte, traffic/2), make([]byte, traffic/2)
	copy(from, src)
	cleared := make([]byte, len(dst))
	return b.compare(Case{
		Name:  fmt.Sprintf("%v to %v, %s", c.from, c.to, place),
		Bytes: int64(traffic),
		Contestants: []Contestant{
			{Name: "**this package**", Does: "`Convert`, `Append`",
				Run: loop(func() error { return appendTensor(c.to, dst, tensor) })},
			{Name: "plain Go", Does: "the loop of a program, one element at a time: github.com/x448/float16 for F16, a shift or integer arithmetic for BF16, a table for F8",
				Run: loop(func() error { c.plain(dst, src); return nil })},
			{Name: "limit: memmove", Does: "`copy` of half of the bytes read and written",
				Run: loop(func() error { copy(to, from); return nil })},
			{Name: "limit: clear", Does: "`clear` of as many bytes as are written: the stores alone, from nothing",
				Run: loop(func() error { clear(cleared); return nil })},
		},
	})
}

// byteTensor returns a tensor of one dimension with the bytes of b.
func byteTensor(dtype safetensors.DType, elements int, b []byte) (safetensors.Tensor, error) {
	switch dtype.Bits() {
	case 32:
		return safetensors.NewTensor(dtype, []int{elements}, of[float32](b))
	case 16:
		return safetensors.NewTensor(dtype, []int{elements}, of[uint16](b))
	default:
		return safetensors.NewTensor(dtype, []int{elements}, b)
	}
}

// appendTensor fills dst, as elements of the given dtype, with a tensor.
func appendTensor(dtype safetensors.DType, dst []byte, t safetensors.Tensor) (err error) {
	if dtype == safetensors.F32 {
		_, err = safetensors.Append(of[float32](dst)[:0], t)
	} else {
		_, err = safetensors.Append(of[uint16](dst)[:0], t)
	}
	return err
}

// of returns the bytes of b, which the Go heap has aligned, as elements.
func of[T uint16 | uint32 | float32](b []byte) []T {
	var t T
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(t)))
}

func plainF16(dst, src []byte) {
	out := of[float32](dst)
	for i, h := range of[uint16](src) {
		out[i] = float16.Frombits(h).Float32()
	}
}

func plainBF16(dst, src []byte) {
	out := of[float32](dst)
	for i, h := range of[uint16](src) {
		out[i] = math.Float32frombits(uint32(h) << 16)
	}
}

var f8Values = func() (table [256]float32) {
	for i := range table {
		exponent, fraction := i>>3&15, i&7
		value := math.Ldexp(float64(8+fraction), exponent-10)
		if exponent == 0 {
			value = math.Ldexp(float64(fraction), -9)
		}
		if i&127 == 127 {
			value = math.NaN()
		}
		table[i] = float32(math.Copysign(value, float64(127-i)))
	}
	return table
}()

func plainF8(dst, src []byte) {
	out := of[float32](dst)
	for i, h := range src {
		out[i] = f8Values[h]
	}
}

func plainToF16(dst, src []byte) {
	out := of[uint16](dst)
	for i, f := range of[float32](src) {
		out[i] = float16.Fromfloat32(f).Bits()
	}
}

func plainToBF16(dst, src []byte) {
	out := of[uint16](dst)
	for i, bits := range of[uint32](src) {
		if bits&0x7FFFFFFF > 0x7F800000 { // NaN stays NaN
			out[i] = uint16(bits>>16) | 0x40
			continue
		}
		out[i] = uint16((bits + 0x7FFF + bits>>16&1) >> 16)
	}
}
