package apitest_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime/metrics"
	"sync/atomic"
	"testing"

	. "github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
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

// BenchmarkWriteComputed writes computed tensors of 64 MB each and reports the peak
// of the heap: it does not grow with the number of tensors.
func BenchmarkWriteComputed(b *testing.B) {
	const size = 64 << 20
	for _, n := range []int{8, 32} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var peak atomic.Uint64
			tensors := make(map[string]Tensor)
			for i := range n {
				t := must(NewTensorFunc(U8, []int{size}, func(dst []byte) error {
					clear(dst)
					heap := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
					metrics.Read(heap)
					for now := heap[0].Value.Uint64(); now > peak.Load(); {
						peak.Store(now)
					}
					return nil
				}))
				tensors[fmt.Sprint(i)] = t
			}
			b.SetBytes(int64(n) * size)
			for b.Loop() {
				require.NoError(b, Write(io.Discard, tensors, nil))
			}
			b.ReportMetric(float64(peak.Load())/1e6, "peak-MB")
		})
	}
}

// BenchmarkTranspose reads a matrix and the transposed matrix, from memory, from an
// io.ReaderAt and from a mapped file, into memory that is already there.
func BenchmarkTranspose(b *testing.B) {
	const side = 6144
	for _, dtype := range []DType{F32, BF16} {
		data := bytes.Repeat([]byte{1}, side*side*dtype.Bits()/8) // not all the same page
		memory := must(NewTensor(dtype, []int{side, side}, data))
		reader := must(NewTensorAt(dtype, []int{side, side}, bytes.NewReader(data)))
		f := must(Open(writeTemp(b, map[string]Tensor{"x": memory})))
		defer f.Close()
		mapped := must(f.Tensor("x"))
		dst := make([]byte, 0, len(data))
		for _, c := range []struct {
			name string
			x    Tensor
		}{{"memory", memory}, {"reader", reader}, {"mapped", mapped}} {
			y := must(c.x.Transpose())
			for _, way := range []struct {
				name string
				x    Tensor
			}{{"copy", c.x}, {"transpose", y}} {
				b.Run(fmt.Sprintf("%v/%s/%s", dtype, c.name, way.name), func(b *testing.B) {
					b.SetBytes(int64(len(data)))
					for b.Loop() {
						must(Append(dst, way.x))
					}
				})
			}
		}
	}
}
