package quant

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestScattered: matrix.line applies scales and zero points alone where an index scatters the
// groups: no layout with an index has anything else.
func TestScattered(t *testing.T) {
	indexed := 0
	for _, l := range layouts {
		has := func(r role) bool { return slices.ContainsFunc(l.parts, func(p part) bool { return p.role == r }) }
		if has(index) {
			indexed++
			require.True(t, has(scales) && !has(biases) && l.constant == 0, l.name)
		}
	}
	require.Positive(t, indexed)
}
