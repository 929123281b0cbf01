package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/stretchr/testify/require"
)

// TestManyRefused: ten of the entries that cannot be read are named, and the others are counted.
func TestManyRefused(t *testing.T) {
	src := &source.Checkpoint{Name: "x.pt"}
	src.Refused = make(map[string]error)
	names := []string{"fine"}
	require.NoError(t, refusedError(src, names))
	for i := range 12 {
		names = append(names, fmt.Sprint("x", i))
		src.Refused[names[i+1]] = errors.New("complex256")
		lines := strings.Split(refusedError(src, names).Error(), "\n")
		require.Equal(t, "--except leaves out what cannot be read", lines[len(lines)-1])
		lines = lines[:len(lines)-1]
		if i >= 10 {
			require.Equal(t, fmt.Sprintf("and %d more of x.pt", i-9), lines[10])
			lines = lines[:10]
		}
		require.Len(t, lines, min(i+1, 10))
		require.Equal(t, `"x0" of x.pt: complex256`, lines[0])
	}
}
