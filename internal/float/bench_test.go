package float

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// BenchmarkConvert compares Convert with the loops, which have no assembly, and with a copy of the
// same number of bytes. It counts bytes read and written. The size in the name is the size of the
// wider side. The values have the distribution of weights: normal, with a standard deviation of
// 0.02.
func BenchmarkConvert(b *testing.B) {
	for _, p := range vectorPairs {
		benchmarkConvert(b, p.from, p.to, 4<<10, 256<<10, 4<<20, 16<<20, 32<<20, 64<<20, 256<<20)
	}
	for _, p := range []struct{ from, to Format }{
		{E5M2FNUZ, F32}, {E2M3, F32}, {F4, F32}, {F32, E4M3}, {F32, E5M2},
		{F32, F64}, {F64, F32}, {F64, BF16}, {F16, BF16}, {E4M3, BF16},
		{I32, F64}, {U32, F64}, {I8, F64},
	} {
		benchmarkConvert(b, p.from, p.to, 256<<10)
	}
}

func benchmarkConvert(b *testing.B, from, to Format, sizes ...int) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("%v-%v/%dKiB", from, to, size>>10), func(b *testing.B) {
			n := size / max(from.Bits(), to.Bits()) * 8
			src, dst := make([]byte, n*from.Bits()/8), make([]byte, n*to.Bits()/8)
			fillWeights(src, from)
			fillWeights(dst, F64)
			// Memory that was never written would be a single page of zeros.
			half := (len(src) + len(dst)) / 2
			original, duplicate := make([]byte, half), make([]byte, half)
			fillWeights(original, F64)
			fillWeights(duplicate, F64)
			run := func(name string, f func()) {
				b.Run(name, func(b *testing.B) {
					b.SetBytes(int64(len(src) + len(dst)))
					for range b.N {
						f()
					}
				})
			}
			run("convert", func() { Convert(dst, to, src, from, false) })
			run("nonTemporal", func() { Convert(dst, to, src, from, true) })
			switch F32 {
			case to:
				run("portable", func() { portableToF32(dst, src, from) })
			case from:
				run("portable", func() { portableFromF32(dst, to, src) })
			}
			run("memmove", func() { copy(duplicate, original) })
		})
	}
}

// fillWeights fills b with elements of format f, or of F64 if nothing can be converted to f. The
// elements repeat.
func fillWeights(b []byte, f Format) {
	rng := rand.New(rand.NewPCG(1, 1))
	codes := make([]uint64, 1<<12)
	for i := range codes {
		codes[i] = math.Float64bits(rng.NormFloat64() * 0.02)
	}
	block := packCodes(F64, codes)
	if Convertible(F64, f) && f != F64 {
		block = make([]byte, len(codes)*f.Bits()/8)
		Convert(block, f, packCodes(F64, codes), F64, false)
	}
	for len(b) > 0 {
		b = b[copy(b, block):]
	}
}
