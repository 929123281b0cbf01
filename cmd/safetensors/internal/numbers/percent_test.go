package numbers

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPercent formats shares of all sizes, very large and very small ones with an exponent.
func TestPercent(t *testing.T) {
	for want, f := range map[string]Float{
		"100 %": 1, "5.0 %": 0.05, "0.12 %": 0.001234, "1.0 %": 0.0101, "0.00012 %": 1.2345e-6, "0 %": 0, "250.0 %": 2.5, "1.2e+22 %": 1.2345e20, "1e-07 %": 1e-9,
	} {
		require.Equal(t, want, f.Percent())
	}
}
