package apitest_test

import (
	"testing"

	. "github.com/gosafetensors/safetensors"
)

// BenchmarkModel copies a whole model in memory, BF16 to float32, tensor by tensor:
// into a new slice each, which Append or the caller makes, into parts of one large
// slice, and into the same slice again and again. The difference is the page faults
// of new memory, and the collector that frees it.
func BenchmarkModel(b *testing.B) {
	const n, elements = 16, 2 << 20
	var tensors []Tensor
	for range n {
		tensors = append(tensors, must(NewTensor(BF16, []int{elements}, make([]uint16, elements))))
	}
	all := make([]float32, 0, n*elements)
	for _, c := range []struct {
		name string
		dst  func(i int) []float32
	}{
		{"nil", func(int) []float32 { return nil }},
		{"make", func(i int) []float32 { return make([]float32, 0, tensors[i].Len()) }},
		{"arena", func(i int) []float32 { return all[i*elements : i*elements : (i+1)*elements] }},
		{"reused", func(int) []float32 { return all[:0] }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(n * elements * 4)
			model := make([][]float32, n)
			for b.Loop() {
				for i, t := range tensors {
					model[i] = must(Append(c.dst(i), t))
				}
			}
		})
	}
}
