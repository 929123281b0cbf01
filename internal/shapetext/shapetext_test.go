package shapetext

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	require.Equal(t, "[]", Of[int](nil))
	require.Equal(t, "[2,-3]", Of([]int{2, -3}))
	require.Equal(t, "[5]", Of([]int64{5}))
	dims := make([]int, 33)
	whole := "[0" + strings.Repeat(",0", 31)
	require.Equal(t, whole+"]", Of(dims[:32]))
	require.Equal(t, whole+",... 33 dimensions]", Of(dims))
}
