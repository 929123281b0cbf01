package safetensors

import (
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/stretchr/testify/require"
)

func TestDTypeFloat(t *testing.T) {
	seen := map[float.Format]DType{}
	for d := BOOL; d <= U64; d++ {
		f := d.float()
		isFloat := strings.HasPrefix(d.String(), "F") || d == BF16
		require.Equal(t, isFloat, f != float.None, "%v", d)
		if isFloat {
			require.Equal(t, d.Bits(), f.Bits(), "%v", d)
			require.NotContains(t, seen, f, "%v", d)
			seen[f] = d
		}
	}
	require.Len(t, seen, int(float.F64))
	require.Equal(t, float.None, DType(0).float())
	require.Equal(t, float.None, (U64 + 1).float())
}
