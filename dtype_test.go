package safetensors

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/internal/float"
	"github.com/stretchr/testify/require"
)

// TestDTypes checks the names of all dtypes, and that no other value has one.
func TestDTypes(t *testing.T) {
	count := 0
	for d := range 256 {
		d := DType(d)
		text, err := d.MarshalText()
		if !d.valid() {
			require.Error(t, err)
			require.Zero(t, d.Bits())
			require.Contains(t, d.String(), "DType(")
			continue
		}
		count++
		require.NoError(t, err)
		require.Equal(t, d.String(), string(text))
		var back DType
		require.NoError(t, back.UnmarshalText(text))
		require.Equal(t, d, back)
		require.Error(t, back.UnmarshalText(bytes.ToLower(text)))
		require.Equal(t, d, back, "unchanged by the error")
	}
	require.Equal(t, 22, count)
	require.Equal(t, DType(1), BOOL)
	require.Equal(t, DType(22), U64)
}

// TestDTypeFloat checks that each float dtype has a float format of its own.
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
