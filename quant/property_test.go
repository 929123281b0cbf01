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
			all := elements[float32](t, x)
			whole, err := safetensors.NewTensor(safetensors.F32, x.Shape(), all)
			require.NoError(t, err)
			for range 10 {
				ranges := make([]safetensors.Range, len(w.shape))
				for d, n := range w.shape {
					start := r.IntN(n)
					ranges[d] = safetensors.Span(start, start+1+r.IntN(n-start)).By(1 + r.IntN(1+r.IntN(3)))
				}
				part := must(x.Slice(ranges...))(t)
				wantElements := elements[float32](t, whole, ranges...)
				requireSame(t, wantElements, elements[float32](t, part), fmt.Sprint(w.title, w.shape, ranges))
			}
			for _, t2 := range []*safetensors.Tensor{&x, &whole} {
				*t2, err = t2.Bitcast(safetensors.U8)
				require.NoError(t, err)
			}
			odd := slices.Repeat([]safetensors.Range{safetensors.All()}, len(w.shape))
			odd[len(odd)-1] = safetensors.Span(1, 1+r.IntN(4*w.shape[len(odd)-1]))
			requireSameBytes(t, whole, x, odd, w.title)
			b := make([]byte, 1+r.IntN(min(3000, int(x.Size()))))
			off := r.Int64N(x.Size() - int64(len(b)) + 1)
			_, err = x.ReadAt(b, off)
			require.NoError(t, err)
			want := make([]byte, len(b))
			_, err = whole.ReadAt(want, off)
			require.NoError(t, err)
			require.Equal(t, want, b, "%s: bytes %d to %d", w.title, off, int(off)+len(b))
		}
	}
}

// requireSameBytes compares a slice of two tensors of bytes.
func requireSameBytes(t *testing.T, want, got safetensors.Tensor, ranges []safetensors.Range, title string) {
	t.Helper()
	var all [2][]byte
	for i, x := range []safetensors.Tensor{want, got} {
		part, err := x.Slice(ranges...)
		require.NoError(t, err)
		all[i] = must(safetensors.Append[byte](nil, part))(t)
	}
	require.Equal(t, all[0], all[1], "%s %v", title, ranges)
}
