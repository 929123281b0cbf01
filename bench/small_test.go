package bench

import (
	"os"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/x448/float16"
)

// BenchmarkSmall reads a few elements, as programs do that look up rows of an embedding or single
// scales. The rows append copy 8 F32 elements to a new slice; the row gather slices one row of 1,024
// F16 elements from a matrix and converts it to float64, in memory that is already there; the row
// concat does the same with one row of a Concat of 10,000 tensors of 64 F32 elements.
//
// What bounds it: in the row append-mapping, the system call. An access to a mapping whose file was
// truncated would end the program, so few bytes are read and not touched.
//
//   - ours: Slice, Append
//   - plain: a loop over the bytes in memory; F16 by github.com/x448/float16
//   - limit-pread: ReadAt of an os.File
func BenchmarkSmall(b *testing.B) {
	path := input("small.safetensors", func(path string) {
		check(safetensors.WriteFile(path, map[string]safetensors.Tensor{
			"scale": must(safetensors.NewTensor(safetensors.F32, []int{8}, make([]float32, 8))),
			"rows":  must(safetensors.NewTensor(safetensors.F16, []int{1000, 1024}, noise(1000*1024*2))),
		}, nil))
	})
	data := must(os.ReadFile(path))
	memory, mapping := must(safetensors.Parse(data)), must(safetensors.Open(path))
	defer mapping.Close()
	b.Run("append-memory", func(b *testing.B) {
		scale := must(memory.Tensor("scale"))
		b.Run("impl=ours", work{}.run(func() { must(safetensors.Append[float32](nil, scale)) }))
	})
	b.Run("append-mapping", func(b *testing.B) {
		scale := must(mapping.Tensor("scale"))
		b.Run("impl=ours", work{}.run(func() { must(safetensors.Append[float32](nil, scale)) }))
		f := must(os.Open(path))
		defer f.Close()
		b.Run("impl=limit-pread", work{}.run(func() { must(f.ReadAt(make([]byte, 32), int64(len(data)-32))) }))
	})
	b.Run("gather", func(b *testing.B) {
		rows, row := must(memory.Tensor("rows")), make([]float64, 0, 1024)
		b.Run("impl=ours", work{}.run(func() {
			must(safetensors.Append(row, must(rows.Slice(safetensors.At(500)))))
		}))
		raw := must(safetensors.View[uint16](rows))
		b.Run("impl=plain", work{}.run(func() {
			for i, x := range raw[500*1024:][:1024] {
				row[:1024][i] = float64(float16.Frombits(x).Float32())
			}
		}))
	})
	b.Run("concat", func(b *testing.B) {
		parts, row := make([]safetensors.Tensor, 10000), make([]float32, 0, 64)
		for i := range parts {
			parts[i] = must(safetensors.NewTensor(safetensors.F32, []int{1, 64}, make([]float32, 64)))
		}
		rows := must(safetensors.Concat(0, parts...))
		b.Run("impl=ours", work{}.run(func() {
			must(safetensors.Append(row, must(rows.Slice(safetensors.At(5000)))))
		}))
	})
}
