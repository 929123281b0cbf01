package main

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/compare"
	"github.com/stretchr/testify/require"
)

// TestDiffOfMany: of 20,000 tensors the last line counts those that differ.
func TestDiffOfMany(t *testing.T) {
	t.Chdir(t.TempDir())
	tensors := make(map[string]safetensors.Tensor)
	for i := range 20_000 {
		tensors[fmt.Sprint("layers.", i)] = floats(t, []int{1}, float32(i+1))
	}
	require.NoError(t, safetensors.WriteFile("a.safetensors", tensors, nil))
	for i := range 1_500 {
		tensors[fmt.Sprint("layers.", 7*i)] = floats(t, []int{1}, float32(7*i+1)*2)
	}
	delete(tensors, "layers.19999")
	require.NoError(t, safetensors.WriteFile("b.safetensors", tensors, nil))
	r := runs(t, "diff", "a.safetensors", "b.safetensors")
	require.Equal(t, 1, r.code)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 1+1_500+1)
	require.Equal(t, "1,500 of 19,999 tensors differ, 1 only in A", lines[len(lines)-1])
	require.Contains(t, lines, "! layers.7: changed by 50.0 % in 1 of 1 elements, the most by 8 at [0]")
}

// TestComparePairTiny: the change of tensors whose squares are not exact in a float64 is NaN, not 0.
func TestComparePairTiny(t *testing.T) {
	for _, c := range []struct{ a, b, change float64 }{
		{1e-200, 2e-200, math.NaN()}, {0, 5e-324, math.NaN()}, {1e-100, 2e-100, 0.5}, {1, 1 + 1e-10, 1e-10}, {0, 0, 0}, {1e200, 2e200, math.NaN()}, {1, 0, math.Inf(1)},
	} {
		tensor := func(x float64) safetensors.Tensor {
			return must(safetensors.NewTensor(safetensors.F64, []int{1}, []float64{x}))
		}
		p, err := comparePair("x", tensor(c.a), tensor(c.b), compare.Tolerance{})
		require.NoError(t, err)
		if math.IsNaN(c.change) || math.IsInf(c.change, 0) {
			require.Equal(t, fmt.Sprint(c.change), fmt.Sprint(float64(p.Change)), "%v", c)
			require.Equal(t, "changed", changeText(p.Change, " over all elements,"))
			continue
		}
		require.InDelta(t, c.change, float64(p.Change), 1e-3*c.change, "%v", c)
	}
}
