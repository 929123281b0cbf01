package main

import (
	"errors"
	"fmt"
	"path/filepath"
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

// TestMergeUnread: merge refuses a tensor that it cannot read in any of the models.
func TestMergeUnread(t *testing.T) {
	partly := must(filepath.Abs("../../torch/testdata/folders/shards")) // its tensor complex has a dtype that safetensors lacks
	t.Chdir(t.TempDir())
	require.Zero(t, runs(t, "cp", partly, "plain.safetensors", "--except", "complex").code)
	for _, models := range [][]string{{partly, "plain.safetensors"}, {"plain.safetensors", partly}} {
		text := fails(t, 1, "merge", models[0], models[1], "new.safetensors")
		require.Contains(t, text, "safetensors has no dtype for torch.complex128")
		require.Contains(t, text, "cp --except makes a copy without what cannot be read")
	}
}
