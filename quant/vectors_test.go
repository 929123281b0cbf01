package quant_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// vectorFiles returns the files that testdata/generate.py has made: those in testdata, and those in
// the directories that the environment names.
func vectorFiles(t testing.TB, pattern string) (names []string) {
	t.Helper()
	for _, folder := range append(filepath.SplitList(os.Getenv("SAFETENSORS_QUANT")), "testdata") {
		more := must(filepath.Glob(filepath.Join(folder, pattern)))
		require.NotEmpty(t, more)
		names = append(names, more...)
	}
	return names
}

// A vector is a quantised checkpoint, together with the numbers that it represents.
type vector struct {
	tensors map[string]safetensors.Tensor
	config  []byte
	want    map[string][]float32
}

func readVector(t testing.TB, name string) vector {
	t.Helper()
	f := must(safetensors.Load(name))
	v := vector{tensors: map[string]safetensors.Tensor{}, want: map[string][]float32{}}
	for name, x := range f.Tensors() {
		if expected, ok := strings.CutPrefix(name, "expect "); ok {
			v.want[expected] = must(safetensors.Append[float32](nil, x))
		} else {
			v.tensors[name] = x
		}
	}
	if c, ok := f.Metadata()["config"]; ok {
		v.config = []byte(c)
	}
	return v
}

// requireSame compares floats bit by bit. A NaN equals any NaN.
func requireSame(t testing.TB, want, got []float32, title string) {
	t.Helper()
	require.Len(t, got, len(want), title)
	for i, w := range want {
		if math.Float32bits(w) != math.Float32bits(got[i]) && (w == w || got[i] == got[i]) {
			require.Failf(t, title, "element %d is %g (%#x), want %g (%#x)", i, got[i], math.Float32bits(got[i]), w, math.Float32bits(w))
		}
	}
}

// TestVectors compares dequantised tensors with the numbers that the reference packages computed.
func TestVectors(t *testing.T) {
	for _, name := range vectorFiles(t, "[^q]*.safetensors") { // the other files are vectors of Quantize
		t.Run(strings.TrimSuffix(filepath.Base(name), ".safetensors"), func(t *testing.T) {
			v := readVector(t, name)
			plain := dequantized(t, v.tensors, v.config)
			for name, want := range v.want {
				require.Contains(t, plain, name)
				require.Equal(t, safetensors.F32, plain[name].DType())
				requireSame(t, want, elements[float32](t, plain[name]), name)
				delete(plain, name)
			}
			for name, x := range plain {
				require.Equal(t, v.tensors[name], x, "left as it is")
				require.NotContains(t, []string{"scale", "zero", "absmax", "idx"}, name)
			}
			require.Subset(t, slices.Collect(maps.Keys(v.tensors)), slices.Collect(maps.Keys(plain)))
		})
	}
}

// TestTwins compares dequantised tensors of every layout with a slow second implementation.
func TestTwins(t *testing.T) {
	for seed := range uint64(20) {
		for _, w := range twins(seed) {
			requireSame(t, w.elements(), elements[float32](t, w.dequantized(t)), w.title)
		}
	}
}

// TestLargeTwins compares some elements of tensors with several tiles.
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

// TestSlices checks that reading a slice of a result gives a part of the whole result.
func TestSlices(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for seed := range uint64(10) {
		for _, w := range twins(100 + seed) {
			x := w.dequantized(t)
			whole := must(safetensors.NewTensor(safetensors.F32, x.Shape(), elements[float32](t, x)))
			for range 10 {
				ranges := make([]safetensors.Range, len(w.shape))
				for d, n := range w.shape {
					start := r.IntN(n)
					ranges[d] = safetensors.Span(start, start+1+r.IntN(n-start)).By(1 + r.IntN(1+r.IntN(3)))
				}
				requireSame(t, elements[float32](t, whole, ranges...), elements[float32](t, x, ranges...), fmt.Sprint(w.title, w.shape, ranges))
			}
			x, whole = must(x.Bitcast(safetensors.U8)), must(whole.Bitcast(safetensors.U8))
			odd := slices.Repeat([]safetensors.Range{safetensors.All()}, len(w.shape))
			odd[len(odd)-1] = safetensors.Span(1, 1+r.IntN(4*w.shape[len(odd)-1]))
			require.Equal(t, elements[byte](t, whole, odd...), elements[byte](t, x, odd...), "%s %v", w.title, odd)
			b := make([]byte, 1+r.IntN(min(3000, int(x.Size()))))
			off := r.Int64N(x.Size() - int64(len(b)) + 1)
			must(x.ReadAt(b, off))
			want := make([]byte, len(b))
			must(whole.ReadAt(want, off))
			require.Equal(t, want, b, "%s: bytes %d to %d", w.title, off, int(off)+len(b))
		}
	}
}
