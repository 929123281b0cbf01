package main

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// train runs the program. It returns the output and the content of the checkpoint.
func train(t *testing.T, file string, args ...string) (string, []byte) {
	var out bytes.Buffer
	require.NoError(t, run(append([]string{"-file", file, "-every", "20"}, args...), &out))
	checkpoint, err := os.ReadFile(file)
	require.NoError(t, err)
	return out.String(), checkpoint
}

// TestResume checks that a run that was stopped and resumed ends with the same checkpoint, byte for
// byte, as a run that was not stopped.
func TestResume(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "latest.safetensors")
	printed, want := train(t, file, "-steps", "100")
	require.NotContains(t, printed, "resumed")
	printed, again := train(t, file, "-steps", "100")
	require.Contains(t, printed, "resumed")
	require.Equal(t, want, again, "nothing is left to do")

	for name, stop := range map[string]func(file string){
		"after a save":  func(file string) { train(t, file, "-steps", "40") },
		"between saves": func(file string) { train(t, file, "-steps", "47") },
		"twice":         func(file string) { train(t, file, "-steps", "20"); train(t, file, "-steps", "61") },
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "latest.safetensors")
			stop(file)
			_, got := train(t, file, "-steps", "100")
			require.Equal(t, want, got)
		})
	}
}

// TestSaver checks that the training continues during a save, that a save waits for the one before
// it, and that the next call returns the error of a save.
func TestSaver(t *testing.T) {
	s := saver{file: filepath.Join(t.TempDir(), "latest.safetensors")}
	m := newModel()
	m.train()
	tensors, metadata, err := m.snapshot()
	require.NoError(t, err)
	proceed := make(chan error)
	blocking, err := safetensors.NewTensorFunc(safetensors.U8, []int{1}, func(dst []byte) error {
		dst[0] = 1
		return <-proceed
	})
	require.NoError(t, err)
	require.NoError(t, s.save(map[string]safetensors.Tensor{"blocking": blocking}, nil))
	want, loss := bytes.Buffer{}, m.loss()
	require.NoError(t, safetensors.Write(&want, tensors, metadata))
	for range 10 {
		m.train() // while the first save is blocked
	}
	require.NotEqual(t, loss, m.loss())

	second := make(chan error)
	go func() { second <- s.save(tensors, metadata) }()
	require.NoFileExists(t, s.file)
	proceed <- nil
	require.NoError(t, <-second)
	require.NoError(t, s.wait())
	got, err := os.ReadFile(s.file)
	require.NoError(t, err)
	require.Equal(t, want.Bytes(), got, "a snapshot does not change")

	failure := errors.New("the disk is full")
	require.NoError(t, s.save(map[string]safetensors.Tensor{"blocking": blocking}, nil))
	proceed <- failure
	require.ErrorIs(t, s.save(tensors, metadata), failure)
	require.NoError(t, s.wait(), "an error is reported once")
	s.file = filepath.Join(s.file, "not a folder")
	require.NoError(t, s.save(tensors, metadata))
	require.Error(t, s.wait())
}

// TestBF16 checks that a checkpoint has the master weights rounded to BF16.
func TestBF16(t *testing.T) {
	file := filepath.Join(t.TempDir(), "latest.safetensors")
	train(t, file, "-steps", "20")
	f, err := safetensors.Load(file)
	require.NoError(t, err)
	exact, rounded := newModel(), newModel()
	require.NoError(t, exact.resume(f))
	require.NoError(t, rounded.loadRounded(f))
	for name, p := range exact.params {
		for i, v := range p.weights {
			require.InDelta(t, v, rounded.params[name].weights[i], math.Abs(float64(v))/256)
		}
	}
	require.NotEqual(t, exact.params["waves.weight"].weights, rounded.params["waves.weight"].weights)
	require.Equal(t, 20, exact.step)
}

// TestTraining: the model of the example learns.
func TestTraining(t *testing.T) {
	m := newModel()
	before := m.loss()
	for range 500 {
		m.train()
	}
	require.Less(t, m.loss(), before/100)
}

// TestErrors: a file that is not a checkpoint of this model is refused.
func TestErrors(t *testing.T) {
	require.ErrorContains(t, run([]string{"-every", "0"}, io.Discard), "-every")
	file := filepath.Join(t.TempDir(), "file")
	fails := func(want string, tensors map[string]safetensors.Tensor, metadata map[string]string) {
		require.NoError(t, safetensors.WriteFile(file, tensors, metadata))
		require.ErrorContains(t, run([]string{"-file", file}, io.Discard), want)
	}
	fails("its metadata has no step", nil, nil)
	fails(`the step in its metadata: strconv.Atoi: parsing "one"`, nil, map[string]string{"step": "one"})
	fails("no tensor of "+file+" is named ", nil, map[string]string{"step": "20"})
	tensors, metadata, err := newModel().snapshot()
	require.NoError(t, err)
	tensors["momentum.waves.weight"] = tensors["bias"]
	fails(`tensor "momentum.waves.weight": its shape is [1], not [1,8]`, tensors, metadata)
	require.Error(t, run([]string{"-file", filepath.Join(file, "x")}, io.Discard))
}
