package access

import (
	"bytes"
	"errors"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestRandom counts how often a tensor is computed.
func TestRandom(t *testing.T) {
	calls := 0
	stored, err := safetensors.NewTensor(safetensors.F32, []int{2, 2}, []float32{1, 2, 3, 4})
	require.NoError(t, err)
	x, err := safetensors.NewTensorFunc(safetensors.F32, []int{2, 2}, func(dst []float32) error {
		calls++
		copy(dst, []float32{1, 2, 3, 4})
		return nil
	})
	require.NoError(t, err)
	converted, err := x.Convert(safetensors.F64)
	require.NoError(t, err)
	part, err := x.Slice(safetensors.Span(1, 2))
	require.NoError(t, err)
	for _, x := range []safetensors.Tensor{x, converted, part} {
		calls = 0
		y, err := Random(x)
		require.NoError(t, err)
		require.Equal(t, 1, calls)
		for range 3 {
			_, err = y.ReadAt(make([]byte, 4), 4)
			require.NoError(t, err)
		}
		require.Equal(t, 1, calls)
		var want, got bytes.Buffer
		_, err = x.WriteTo(&want)
		require.NoError(t, err)
		_, err = y.WriteTo(&got)
		require.NoError(t, err)
		require.Equal(t, want.Bytes(), got.Bytes())
		require.Equal(t, x.String(), y.String())
	}

	at, err := safetensors.NewTensorAt(safetensors.F32, []int{1 << 40}, stored)
	require.NoError(t, err)
	for _, x := range []safetensors.Tensor{stored, at} {
		y, err := Random(x)
		require.NoError(t, err)
		require.Equal(t, x, y, "what is stored is not copied")
	}

	broken, err := safetensors.NewTensorFunc(safetensors.F32, nil, func([]float32) error { return errors.New("broken") })
	require.NoError(t, err)
	_, err = Random(broken)
	require.ErrorContains(t, err, "broken")
}
