package quant_test

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// TestModels quantises a small model and dequantises it again. transformers, with
// compressed-tensors, loads the results: see testdata/models.py.
func TestModels(t *testing.T) {
	python := os.Getenv("SAFETENSORS_QUANT_PYTHON")
	if python == "" {
		t.Skip("SAFETENSORS_QUANT_PYTHON names no Python that has testdata/requirements.txt")
	}
	dir := t.TempDir()
	run := func(verb string) {
		out, err := exec.Command(python, "testdata/models.py", verb, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("make")
	base := filepath.Join(dir, "base")
	f := must(safetensors.Open(base))(t)
	defer f.Close()
	text := must(os.ReadFile(filepath.Join(base, "config.json")))(t)
	write := func(folder string, tensors map[string]safetensors.Tensor, more []byte) string {
		folder = filepath.Join(dir, folder)
		config := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &config))
		require.NoError(t, json.Unmarshal(more, &config))
		joined := must(json.Marshal(config))(t)
		require.NoError(t, safetensors.WriteShards(folder, tensors, map[string]string{"format": "pt"}, 1<<40))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), joined, 0o666))
		return folder
	}
	for _, scheme := range schemes {
		tensors, config := quantized(t, maps.Collect(f.Tensors()), scheme)
		q, err := quant.Open(write("ours-"+string(scheme), tensors, config))
		require.NoError(t, err)
		plain := maps.Collect(q.Tensors())
		for name, x := range plain {
			plain[name] = must(x.Convert(safetensors.BF16))(t)
		}
		write("back-"+string(scheme), plain, []byte("{}"))
		require.NoError(t, q.Close())
	}
	run("compare")
}
