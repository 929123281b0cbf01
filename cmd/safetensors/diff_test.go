package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestDiffOfMany: of 20,000 tensors the last line counts those that differ.
func TestDiffOfMany(t *testing.T) {
	t.Chdir(t.TempDir())
	tensors := make(map[string]safetensors.Tensor)
	for i := range 20_000 {
		tensors[fmt.Sprint("layers.", i)] = floats(t, []int{1}, float32(i+1))
	}
	require.NoError(t, safetensors.WriteFile("a.safetensors", tensors, nil))
	for i := range 1_500 {
		tensors[fmt.Sprint("layers.", 7*i)] = floats(t, []int{1}, float32(7*i+1)*2)
	}
	delete(tensors, "layers.19999")
	require.NoError(t, safetensors.WriteFile("b.safetensors", tensors, nil))
	r := runs(t, "diff", "a.safetensors", "b.safetensors")
	require.Equal(t, 1, r.code)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	require.Len(t, lines, 1+1_500+1)
	require.Equal(t, "1,500 of 19,999 tensors differ, 1 only in A", lines[len(lines)-1])
	require.Contains(t, lines, "! layers.7: changed by 50.0 % in 1 of 1 elements, the most by 8 at [0]")
}
