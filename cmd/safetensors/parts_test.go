package main

import (
	"fmt"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

const planFile = ".safetensors-plan.json"

// withoutPlan returns the files in a folder but for the plan, which must be there.
func withoutPlan(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := tree(t, dir)
	require.Contains(t, files, planFile)
	delete(files, planFile)
	return files
}

// writePartsSource writes a checkpoint of ten tensors.
func writePartsSource(t *testing.T, name string) {
	tensors := make(map[string]safetensors.Tensor)
	for i := range 10 {
		tensors[fmt.Sprintf("layers.%d", i)] = counting(t, 20+i)
	}
	require.NoError(t, safetensors.WriteFile(name, tensors, map[string]string{"format": "pt"}))
}
