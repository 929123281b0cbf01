package bench

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/x448/float16"
)

// BenchmarkConvert goes from a tensor in memory to a slice of another dtype, in
// memory that is already there. In rows named cache it has 64 Ki elements; in
// rows named memory the F32 side has 256 MiB. In rows named all-CPUs every
// contestant divides the work among as many threads as there are CPUs. The
// throughput counts the bytes read and those written.
//
// What bounds it: in cache, the stores: where the result is F32, limit-clear alone
// takes as long as limit-memmove. In memory, the bandwidth. Our stores bypass the
// cache, which saves reading what they overwrite; limit-memmove does so on some
// processors and is slower than ours on others. limit-clear writes zeros, for which
// some have a faster way.
//
//   - ours: Convert, Append
//   - plain: one element at a time; F16 by github.com/x448/float16, BF16 by shifts, F8 by a table
//   - limit-memmove: copy that reads and writes as many bytes in total
//   - limit-clear: clear of as many bytes as are written, the stores alone
func BenchmarkConvert(b *testing.B) {
	for _, p := range []place{
		{"cache", 64 * kiB, 1},
		{"memory", int(sized(64*miB, 256*kiB)), 1},
		{"memory-all-CPUs", int(sized(64*miB, 256*kiB)), runtime.NumCPU()},
	} {
		convert(b, p, safetensors.F16, safetensors.F32, plainF16)
		convert(b, p, safetensors.BF16, safetensors.F32, plainBF16)
		convert(b, p, safetensors.F8_E4M3, safetensors.F32, plainF8)
		convert(b, p, safetensors.F32, safetensors.F16, plainToF16)
		convert(b, p, safetensors.F32, safetensors.BF16, plainToBF16)
	}
}

type place struct {
	name              string
	elements, threads int
}

// convert measures one conversion; plain is the loop a user would write.
func convert[D, S safetensors.Element](b *testing.B, p place, from, to safetensors.DType, plain func(dst []D, src []S)) {
	b.Run(fmt.Sprintf("%v-to-%v-%s", from, to, p.name), func(b *testing.B) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(p.threads))
		bytes := p.elements * (from.Bits() + to.Bits()) / 8
		w := work{bytes: int64(bytes)}
		b.Run("impl=ours", func(b *testing.B) {
			src := must(safetensors.NewTensor(from, []int{p.elements}, elements[S](from, p.elements)))
			t := must(src.Convert(to))
			dst := make([]D, 0, p.elements)
			w.measure(b, func() { must(safetensors.Append(dst, t)) })
		})
		b.Run("impl=plain", func(b *testing.B) {
			dst, src := make([]D, p.elements), elements[S](from, p.elements)
			w.measure(b, func() { inParts(p.threads, dst, src, plain) })
		})
		b.Run("impl=limit-memmove", w.memmove(bytes/2, p.threads))
		b.Run("impl=limit-clear", func(b *testing.B) {
			dst := make([]D, p.elements)
			w.measure(b, func() { inParts(p.threads, dst, dst, func(dst, _ []D) { clear(dst) }) })
		})
	})
}

// elements returns numbers from 1 to 2 in any dtype.
func elements[S safetensors.Element](dtype safetensors.DType, n int) []S {
	values := make([]float32, n)
	for i := range values {
		values[i] = 1 + float32(i%kiB)/kiB
	}
	t := must(safetensors.NewTensor(safetensors.F32, []int{n}, values))
	return must(safetensors.Append[S](nil, must(t.Convert(dtype))))
}

func plainF16(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = float16.Frombits(h).Float32()
	}
}

func plainBF16(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}

// f8Values holds the value of every code of F8_E4M3.
var f8Values = func() (values [256]float32) {
	for code := range values {
		codes := must(safetensors.NewTensor(safetensors.F8_E4M3, []int{1}, []uint8{uint8(code)}))
		must(safetensors.Append(values[code:code], codes))
	}
	return values
}()

func plainF8(dst []float32, src []uint8) {
	for i, code := range src {
		dst[i] = f8Values[code]
	}
}

func plainToF16(dst []uint16, src []float32) {
	for i, f := range src {
		dst[i] = float16.Fromfloat32(f).Bits()
	}
}

func plainToBF16(dst []uint16, src []float32) {
	for i, f := range src {
		bits := math.Float32bits(f)
		if bits&0x7FFFFFFF > 0x7F800000 { // NaN stays NaN
			dst[i] = uint16(bits>>16) | 0x40
			continue
		}
		dst[i] = uint16((bits + 0x7FFF + bits>>16&1) >> 16)
	}
}

// BenchmarkTranspose transposes a matrix of 8192 rows and columns from memory into
// memory that is already there. In rows named all-CPUs every contestant but numpy,
// which has no threads, uses all CPUs.
//
// What bounds it: the bytes of a column are in as many cache lines and pages as there are
// rows, and a line of the result is read before it is written. On one CPU PyTorch takes
// 1.3 to 2.7 times as long, depending on the size of the elements and the processor.
//
//   - ours: Transpose, Append
//   - plain: two loops, row by row of the result
//   - numpy: copyto from the transposed array
//   - torch: PyTorch 2.15.0: copy_ from the transposed tensor
//   - limit-memmove: copy of as many bytes
func BenchmarkTranspose(b *testing.B) {
	transpose[uint8](b, safetensors.F8_E4M3)
	transpose[uint16](b, safetensors.BF16)
	transpose[float32](b, safetensors.F32)
}

func transpose[T safetensors.Element](b *testing.B, dtype safetensors.DType) {
	side := int(sized(8192, 256))
	size := side * side * dtype.Bits() / 8
	w := work{bytes: int64(size)}
	for _, threads := range []int{1, runtime.NumCPU()} {
		name := dtype.String()
		if threads > 1 {
			name += "-all-CPUs"
		}
		b.Run(name, func(b *testing.B) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(threads))
			b.Run("impl=ours", func(b *testing.B) {
				src, dst := elements[T](dtype, side*side), make([]T, 0, side*side)
				t := must(must(safetensors.NewTensor(dtype, []int{side, side}, src)).Transpose())
				w.measure(b, func() { must(safetensors.Append(dst, t)) })
			})
			if !strings.HasSuffix(name, "all-CPUs") {
				b.Run("impl=plain", func(b *testing.B) {
					src, dst := elements[T](dtype, side*side), make([]T, side*side)
					w.measure(b, func() { plainTranspose(dst, src, side) })
				})
				b.Run("impl=numpy", w.foreign(python, "transpose", fmt.Sprintf("uint%d", dtype.Bits()), fmt.Sprint(side)))
			}
			torchType := map[safetensors.DType]string{safetensors.F8_E4M3: "float8_e4m3fn", safetensors.BF16: "bfloat16", safetensors.F32: "float32"}[dtype]
			b.Run("impl=torch", w.foreign(torch, "transpose", torchType, fmt.Sprint(side)))
			b.Run("impl=limit-memmove", w.memmove(size, threads))
		})
	}
}

func plainTranspose[T any](dst, src []T, side int) {
	for i := range side {
		row := dst[i*side:][:side]
		for k := range row {
			row[k] = src[k*side+i]
		}
	}
}
