package pattern

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCompare sorts names from every order of two, and numbers with zeros in front, or beyond any
// integer type, by their values.
func TestCompare(t *testing.T) {
	sorted := []string{"", "0", "00", "1", "2", "10", "99999999999999999999", "100000000000000000000", "a", "a.0", "a.0.x", "a.1.x", "a.2", "a.02.b", "a.10", "a1", "a10b", "ab", "b"}
	for i, a := range sorted {
		for j, b := range sorted {
			require.Equal(t, i < j, Compare(a, b) < 0, "%q %q", a, b)
			require.Equal(t, i == j, Compare(a, b) == 0, "%q %q", a, b)
		}
	}
	mixed := slices.Clone(sorted)
	slices.Reverse(mixed)
	slices.SortFunc(mixed, Compare)
	require.Equal(t, sorted, mixed)
}
