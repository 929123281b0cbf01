package safetensors

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkAppendSmall appends 8 elements of a tensor in memory, and in a mapped file.
func BenchmarkAppendSmall(b *testing.B) {
	x := must(NewTensor(F32, []int{8}, make([]float32, 8)))
	name := filepath.Join(b.TempDir(), "x.safetensors")
	require.NoError(b, WriteFile(name, map[string]Tensor{"x": x}, nil))
	f := must(Open(name))
	defer f.Close()
	for _, c := range []struct {
		from string
		x    Tensor
	}{{"Memory", x}, {"Mapping", must(f.Tensor("x"))}} {
		b.Run(c.from, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				must(Append[float32](nil, c.x))
			}
		})
	}
}

// TestAppendSmall: appending a few elements that are in memory allocates only the memory of the
// result.
func TestAppendSmall(t *testing.T) {
	x := must(NewTensor(F32, []int{8}, make([]float32, 8)))
	require.Equal(t, 1.0, testing.AllocsPerRun(100, func() { must(Append[float32](nil, x)) }))
}
