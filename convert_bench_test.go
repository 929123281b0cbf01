package safetensors

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// BenchmarkConvert measures conversion, with bytes read and written, beside a
// copy of as many bytes and the loops without assembly. A size is that of the
// output or, in narrowing, of the input. The values are spread as weights are:
// normally, with standard deviation 0.02.
func BenchmarkConvert(b *testing.B) {
	for _, size := range []int{4 << 10, 256 << 10, 16 << 20, 64 << 20, 256 << 20} {
		for _, c := range []struct{ from, to DType }{
			{BF16, F32}, {F16, F32}, {F8_E4M3, F32}, {F8_E5M2, F32}, {F8_E4M3FNUZ, F32}, {F8_E5M2FNUZ, F32},
			{F6_E2M3, F32}, {F4, F32}, {F32, BF16}, {F32, F16}, {F32, F8_E4M3}, {F32, F8_E5M2},
			{F32, F64}, {F64, F32}, {F64, BF16}, {F16, BF16}, {F8_E4M3, BF16},
		} {
			wide := max(c.from.Bits(), c.to.Bits())
			n := size / wide * 8 &^ 3
			src, dst := make([]byte, n*c.from.Bits()/8), make([]byte, n*c.to.Bits()/8)
			fillWeights(src, c.from)
			fillWeights(dst, BF16)
			run := func(name string, f func()) {
				b.Run(fmt.Sprintf("%v-%v/%s/%s", c.from, c.to, sizeName(size), name), func(b *testing.B) {
					b.SetBytes(int64(len(src) + len(dst)))
					for range b.N {
						f()
					}
				})
			}
			run("convert", func() { convert(dst, c.to, src, c.from, false) })
			run("stream", func() { convert(dst, c.to, src, c.from, true) })
			switch {
			case c.to == F32:
				run("portable", func() { portableToF32(dst, src, c.from) })
			case c.from == F32:
				run("portable", func() { portableFromF32(dst, c.to, src) })
			}
			half := (len(src) + len(dst)) / 2
			from, to := make([]byte, half), make([]byte, half)
			fillWeights(from, BF16) // memory never written is one shared page of zeros
			copy(to, from)
			run("memmove", func() { copy(to, from) })
		}
	}
}

func sizeName(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dMiB", n>>20)
}

// fillWeights fills b, a multiple of 24 bits or whole elements of d.
func fillWeights(b []byte, d DType) {
	rng := rand.New(rand.NewPCG(1, 1))
	if !convertible(F64, d) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return
	}
	codes := make([]uint64, 1<<12)
	for i := range codes {
		codes[i] = math.Float64bits(rng.NormFloat64() * 0.02)
	}
	block := make([]byte, len(codes)*d.Bits()/8)
	convert(block, d, pack(F64, codes), F64, false)
	for len(b) > 0 {
		b = b[copy(b, block):]
	}
}
