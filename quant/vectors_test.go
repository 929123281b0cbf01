package quant_test

import (
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// vectorFiles returns files of testdata/generate.py: those in testdata, and those of the folder
// that the environment names.
func vectorFiles(t testing.TB, pattern string) (names []string) {
	t.Helper()
	for _, folder := range []string{"testdata", os.Getenv("SAFETENSORS_QUANT")} {
		if folder != "" {
			more := must(filepath.Glob(filepath.Join(folder, pattern)))(t)
			require.NotEmpty(t, more)
			names = append(names, more...)
		}
	}
	return names
}

// A vector is a quantised checkpoint, and what it stands for.
type vector struct {
	tensors map[string]safetensors.Tensor
	config  []byte
	want    map[string][]float32
}

func readVector(t testing.TB, name string) vector {
	t.Helper()
	f, err := safetensors.Load(name)
	require.NoError(t, err)
	v := vector{tensors: map[string]safetensors.Tensor{}, want: map[string][]float32{}}
	for name, x := range f.Tensors() {
		if expected, ok := strings.CutPrefix(name, "expect "); ok {
			v.want[expected] = must(safetensors.Append[float32](nil, x))(t)
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

// TestVectors compares with what the reference packages computed.
func TestVectors(t *testing.T) {
	for _, name := range vectorFiles(t, "[^q]*.safetensors") { // not those of Quantize
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

// TestLayoutsWithoutConfig: names, dtypes and shapes tell the layouts apart, but for the bits
// of some.
func TestLayoutsWithoutConfig(t *testing.T) {
	for _, w := range twins(9) {
		with := must(quant.Layouts(w.tensors, []byte(w.config)))(t)
		without, err := quant.Layouts(w.tensors, nil)
		if err != nil {
			require.ErrorContains(t, err, "only a config tells", w.title)
			continue
		}
		require.Equal(t, slices.Sorted(maps.Keys(with)), slices.Sorted(maps.Keys(without)), w.title)
		for name, l := range with {
			require.Equal(t, l.Bits, without[name].Bits, "%s: %s", w.title, name)
		}
	}
}
