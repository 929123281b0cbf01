package quant_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

func TestTwins(t *testing.T) {
	for seed := range uint64(20) {
		for _, w := range twins(seed) {
			requireSame(t, w.elements(), elements[float32](t, w.dequantized(t)), w.title)
		}
	}
}

// TestLargeTwins: tensors of several tiles, of which it compares some elements.
func TestLargeTwins(t *testing.T) {
	times := 300
	if testing.Short() {
		times = 10
	}
	r := rand.New(rand.NewPCG(7, 8))
	for _, w := range twinsOf(200, times) {
		got := elements[float32](t, w.dequantized(t))
		for range 2000 {
			e := r.IntN(len(got))
			requireSame(t, []float32{w.at(w.index(e))}, got[e:e+1], fmt.Sprint(w.title, w.shape, e))
		}
	}
}

// TestSlices checks that slices of a result are the result's slices.
func TestSlices(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for seed := range uint64(10) {
		for _, w := range twins(100 + seed) {
			x := w.dequantized(t)
			whole := must(safetensors.NewTensor(safetensors.F32, x.Shape(), elements[float32](t, x)))(t)
			for range 10 {
				ranges := make([]safetensors.Range, len(w.shape))
				for d, n := range w.shape {
					start := r.IntN(n)
					ranges[d] = safetensors.Span(start, start+1+r.IntN(n-start)).By(1 + r.IntN(1+r.IntN(3)))
				}
				requireSame(t, elements[float32](t, whole, ranges...), elements[float32](t, x, ranges...), fmt.Sprint(w.title, w.shape, ranges))
			}
			x, whole = must(x.Bitcast(safetensors.U8))(t), must(whole.Bitcast(safetensors.U8))(t)
			odd := slices.Repeat([]safetensors.Range{safetensors.All()}, len(w.shape))
			odd[len(odd)-1] = safetensors.Span(1, 1+r.IntN(4*w.shape[len(odd)-1]))
			require.Equal(t, elements[byte](t, whole, odd...), elements[byte](t, x, odd...), "%s %v", w.title, odd)
			b := make([]byte, 1+r.IntN(min(3000, int(x.Size()))))
			off := r.Int64N(x.Size() - int64(len(b)) + 1)
			_, err := x.ReadAt(b, off)
			require.NoError(t, err)
			want := make([]byte, len(b))
			_, err = whole.ReadAt(want, off)
			require.NoError(t, err)
			require.Equal(t, want, b, "%s: bytes %d to %d", w.title, off, int(off)+len(b))
		}
	}
}
