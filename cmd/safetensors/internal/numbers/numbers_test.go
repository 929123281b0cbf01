package numbers

import (
	"math"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestAppend has the numbers of some elements of each dtype.
func TestAppend(t *testing.T) {
	for d, c := range map[safetensors.DType]struct {
		data []byte
		want []float64
	}{
		safetensors.BOOL: {[]byte{0, 1, 2, 255}, []float64{0, 1, 1, 1}},
		safetensors.I8:   {[]byte{0x80, 0x7f}, []float64{-128, 127}},
		safetensors.U16:  {[]byte{0xff, 0xff}, []float64{65535}},
		safetensors.I64:  {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []float64{-1}},
		safetensors.U64:  {[]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []float64{1 << 64}},
		safetensors.C64:  {[]byte{0, 0, 0x80, 0x3f, 0, 0, 0x80, 0xff}, []float64{1, math.Inf(-1)}},
		safetensors.F4:   {[]byte{0x71}, []float64{0.5, 6}},
	} {
		n := len(c.data) * 8 / d.Bits()
		x, err := safetensors.NewTensor(d, []int{n}, c.data)
		require.NoError(t, err)
		require.Equal(t, int64(n), Count(x))
		got, err := Append([]float64{7}, x)
		require.NoError(t, err)
		require.Equal(t, append([]float64{7}, c.want...), got, d)
	}
	scalar, err := safetensors.NewTensor(safetensors.U8, nil, []byte{3})
	require.NoError(t, err)
	require.Equal(t, int64(1), Count(scalar))
}
