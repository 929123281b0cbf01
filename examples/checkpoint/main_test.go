package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// train runs the program on a folder and returns what it prints.
func train(t *testing.T, dir string, args ...string) string {
	var out bytes.Buffer
	require.NoError(t, run(append([]string{"-dir", dir, "-every", "20"}, args...), &out))
	return out.String()
}

func fileNames(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// However often and wherever a run is stopped, its last checkpoint is, byte for
// byte, that of a run without a stop.
func TestResume(t *testing.T) {
	const last = "step-000000100.safetensors"
	whole := t.TempDir()
	require.NotContains(t, train(t, whole, "-steps", "100"), "resumed")
	want, err := os.ReadFile(filepath.Join(whole, last))
	require.NoError(t, err)

	for name, interrupt := range map[string]func(t *testing.T, dir string){
		"between two checkpoints": func(t *testing.T, dir string) {
			train(t, dir, "-steps", "47")
		},
		"twice": func(t *testing.T, dir string) {
			train(t, dir, "-steps", "20")
			train(t, dir, "-steps", "61")
		},
		"by a crash": func(t *testing.T, dir string) {
			require.Panics(t, func() { run([]string{"-dir", dir, "-every", "20", "-steps", "100"}, &crash{after: 3}) })
		},
		"while a checkpoint is written": func(t *testing.T, dir string) {
			train(t, dir, "-steps", "40")
			half, err := os.ReadFile(filepath.Join(dir, "step-000000040.safetensors"))
			require.NoError(t, err)
			require.NoError(t, os.Remove(filepath.Join(dir, "step-000000040.safetensors")))
			require.NoError(t, os.WriteFile(filepath.Join(dir, ".safetensors-0123456789abcdef.tmp"), half[:len(half)/2], 0o666))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			interrupt(t, dir)
			require.Contains(t, train(t, dir, "-steps", "100"), "resumed from")
			got, err := os.ReadFile(filepath.Join(dir, last))
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Len(t, fileNames(t, dir), 3, "only what -keep says is left")
		})
	}
}

// crash is a Writer that panics after some lines.
type crash struct{ after int }

func (c *crash) Write(b []byte) (int, error) {
	if c.after--; c.after == 0 {
		panic("crash")
	}
	return len(b), nil
}

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	train(t, dir, "-steps", "90", "-keep", "2")
	require.Equal(t, []string{"step-000000080.safetensors", "step-000000090.safetensors"}, fileNames(t, dir))
}

// The BF16 weights are the master weights rounded, and are not enough to resume.
func TestBF16(t *testing.T) {
	dir := t.TempDir()
	train(t, dir, "-steps", "20")
	f, err := safetensors.Load(filepath.Join(dir, "step-000000020.safetensors"))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"step": "20"}, f.Metadata())
	different := 0
	for _, p := range newModel().params {
		weights, err := f.Tensor(p.name)
		require.NoError(t, err)
		require.Equal(t, safetensors.BF16, weights.DType())
		rounded, err := safetensors.Append[float32](nil, weights)
		require.NoError(t, err)
		masters, err := f.Tensor(masterPrefix + p.name)
		require.NoError(t, err)
		require.Equal(t, safetensors.F32, masters.DType())
		exact, err := safetensors.Append[float32](nil, masters)
		require.NoError(t, err)
		for i := range exact {
			require.InDelta(t, exact[i], rounded[i], math.Abs(float64(exact[i]))/256)
			if exact[i] != rounded[i] {
				different++
			}
		}
	}
	require.Positive(t, different)
}

func TestTraining(t *testing.T) {
	m := newModel()
	before := m.loss()
	for range 500 {
		m.train()
	}
	require.Less(t, m.loss(), before/100)
}

func TestErrors(t *testing.T) {
	require.ErrorContains(t, run([]string{"-every", "0"}, io.Discard), "-every")
	require.ErrorContains(t, run([]string{"-keep", "0"}, io.Discard), "-keep")

	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))
	require.Error(t, run([]string{"-dir", file}, io.Discard))

	// A checkpoint of another model, and one that is no checkpoint at all.
	dir := t.TempDir()
	name := filepath.Join(dir, "step-000000020.safetensors")
	require.NoError(t, safetensors.WriteFile(name, nil, nil))
	require.ErrorContains(t, run([]string{"-dir", dir}, io.Discard), "the step in the metadata")
	require.NoError(t, safetensors.WriteFile(name, nil, map[string]string{"step": "20"}))
	require.ErrorContains(t, run([]string{"-dir", dir}, io.Discard), "hidden.weight")
	wrong, err := safetensors.NewTensor(safetensors.F32, []int{2}, []float32{1, 2})
	require.NoError(t, err)
	tensors := make(map[string]safetensors.Tensor)
	for _, p := range newModel().params {
		for prefix := range p.state() {
			tensors[prefix+p.name] = wrong
		}
	}
	require.NoError(t, safetensors.WriteFile(name, tensors, map[string]string{"step": "20"}))
	require.ErrorContains(t, run([]string{"-dir", dir}, io.Discard), "has shape [2], the model needs [32 1]")
}
