package blocks

import (
	"errors"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestJoinOf: blocks have at most the given number of elements, and an error of one of them is that of
// all.
func TestJoinOf(t *testing.T) {
	wrong := errors.New("no block")
	for most := int64(1); most <= 7; most++ {
		last := 0
		tensor, err := JoinOf(most, []int{2, 3}, func(block []safetensors.Range, shape []int) (safetensors.Tensor, error) {
			n := 1
			for _, dim := range shape {
				n *= dim
			}
			require.LessOrEqual(t, int64(n), most)
			values := make([]uint8, n)
			for i := range values {
				values[i] = uint8(last + i)
			}
			last += n
			return safetensors.NewTensor(safetensors.U8, shape, values)
		})
		require.NoError(t, err)
		require.Equal(t, []int{2, 3}, tensor.Shape())
		values, err := safetensors.Append[uint8](nil, tensor)
		require.NoError(t, err)
		require.Equal(t, []uint8{0, 1, 2, 3, 4, 5}, values)

		_, err = JoinOf(most, []int{2, 3}, func([]safetensors.Range, []int) (safetensors.Tensor, error) {
			return safetensors.Tensor{}, wrong
		})
		require.ErrorIs(t, err, wrong)
	}
}
