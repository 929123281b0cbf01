package bench

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
)

// BenchmarkTranspose transposes a matrix of 8192 rows and columns from memory into
// memory that is already there. In rows named all-CPUs every contestant but numpy,
// which has no threads, uses all CPUs.
//
// What bounds it: in large blocks, the bandwidth of memory; the bytes of a column are
// in as many cache lines and pages as there are rows. PyTorch is a tenth faster where
// the elements have four bytes or one.
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
