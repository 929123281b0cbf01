//go:build !purego

package dequant

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoops runs the tests without assembly, so that the loops process all elements, as on other
// processors.
func TestLoops(t *testing.T) {
	defer func(has bool) { hasVector = has }(hasVector)
	hasVector = false
	t.Run("Unpack", TestUnpack)
	t.Run("UnpackDown", TestUnpackDown)
	t.Run("Groups", TestGroups)
}

// TestShortNumbers: if there are fewer factors or terms than groups, Go panics before the assembly
// reads beyond the last one. No element has been changed then.
func TestShortNumbers(t *testing.T) {
	if !hasVector {
		t.Skip("no AVX2")
	}
	for name, call := range map[string]func(dst, numbers []float32){
		"Mul each":   func(dst, numbers []float32) { Mul(dst, numbers, 1, 0) },
		"Mul groups": func(dst, numbers []float32) { Mul(dst, numbers[60:], 16, 0) },
		"Add":        func(dst, numbers []float32) { Add(dst, numbers[60:], 16, 0) },
		"Sub":        func(dst, numbers []float32) { Sub(dst, numbers[60:], 16, 0) },
	} {
		threes, twos := slices.Repeat([]float32{3}, 64), slices.Repeat([]float32{2}, 64)
		dst := slices.Clone(threes)
		require.Panics(t, func() { call(dst, twos[:63:63]) }, name)
		require.Equal(t, threes, dst, name)
		require.NotPanics(t, func() { call(dst, twos) }, name)
		require.NotEqual(t, threes, dst, name)
	}
}
