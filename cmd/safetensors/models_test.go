package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// writeModels writes a pipeline of diffusers and a model of sentence-transformers.
func writeModels(t *testing.T, dir string) {
	t.Helper()
	model := func(name string, tensors map[string]safetensors.Tensor) {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
		require.NoError(t, safetensors.WriteFile(name, tensors, nil))
		write(t, filepath.Join(filepath.Dir(name), "config.json"), `{"dtype": "float32"}`)
	}
	w := map[string]safetensors.Tensor{"w": counting(t, 2, 3)}
	model("pipe/unet/diffusion_pytorch_model.safetensors", w)
	model("pipe/text_encoder/model.safetensors", map[string]safetensors.Tensor{"e": counting(t, 4)})
	write(t, filepath.Join(dir, "pipe", "model_index.json"), `{"_class_name": "P", "unet": ["diffusers", "UNet2DModel"], "text_encoder": ["transformers", "CLIPTextModel"], "scheduler": ["diffusers", "DDPMScheduler"]}`)
	write(t, filepath.Join(dir, "pipe", "scheduler", "scheduler_config.json"), "{}")
	model("st/model.safetensors", w)
	model("st/2_Dense/model.safetensors", map[string]safetensors.Tensor{"linear.weight": counting(t, 2)})
	write(t, filepath.Join(dir, "st", "modules.json"), `[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}, {"idx": 1, "name": "1", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}]`)
}

// requireModels requires that a folder has the models of another one, in a dtype, and that their
// configs tell it.
func requireModels(t *testing.T, from, to string, d safetensors.DType, files ...string) {
	t.Helper()
	for _, name := range files {
		want, got := must(safetensors.Open(filepath.Join(from, name))), must(safetensors.Open(filepath.Join(to, name)))
		require.Equal(t, want.Len(), got.Len(), name)
		for key, w := range want.Tensors() {
			require.True(t, must(safetensors.Equal(must(w.Convert(d)), must(got.Tensor(key)))), name)
		}
		var config struct{ DType string }
		require.NoError(t, json.Unmarshal(must(os.ReadFile(filepath.Join(to, filepath.Dir(name), "config.json"))), &config))
		require.Equal(t, map[safetensors.DType]string{safetensors.F32: "float32", safetensors.BF16: "bfloat16"}[d], config.DType, name)
		require.NoError(t, want.Close())
		require.NoError(t, got.Close())
	}
}

// TestModelsOfFolders copies and converts all models of a pipeline and of a model with modules, from
// a disk and from a hub. Their own configs get the new dtype, and the other files come along.
func TestModelsOfFolders(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModels(t, "here")
	published := t.TempDir()
	writeModels(t, published)
	startHub(t, filepath.Join(published, "pipe"))
	pipe := []string{"unet/diffusion_pytorch_model.safetensors", "text_encoder/model.safetensors"}
	for _, src := range []string{"here/pipe", "hf://owner/name"} {
		succeeds(t, "cp", src, "plain", "--with-files")
		requireModels(t, "here/pipe", "plain", safetensors.F32, pipe...)
		require.FileExists(t, "plain/scheduler/scheduler_config.json")
		require.FileExists(t, "plain/model_index.json")
		succeeds(t, "cp", src, "half", "--dtype", "bf16")
		requireModels(t, "here/pipe", "half", safetensors.BF16, pipe...)
		require.NoFileExists(t, "half/model_index.json")
		require.NoError(t, os.RemoveAll("plain"))
		require.NoError(t, os.RemoveAll("half"))
	}
	require.Contains(t, fails(t, 1, "cp", "here/pipe", "one.safetensors"), "several models (text_encoder, unet)")

	var got copied
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "cp", "here/st", "st", "--with-files", "--dtype", "bf16", "--json")), &got))
	require.Equal(t, []string{"2_Dense/config.json", "config.json", "modules.json"}, got.Files)
	require.Equal(t, 2, got.Total.Tensors)
	requireModels(t, "here/st", "st", safetensors.BF16, "model.safetensors", "2_Dense/model.safetensors")
	r := runs(t, "cp", "here/st", "one.safetensors")
	require.Equal(t, 0, r.code)
	require.Contains(t, r.stderr, "the weights in 2_Dense are left out")
}

// TestQuantiseOneModel: --targets names tensors with the folder of their model, the other models
// stay as they are, and --dequantize needs one model with quantised tensors.
func TestQuantiseOneModel(t *testing.T) {
	t.Chdir(t.TempDir())
	writeModels(t, ".")
	matrix := map[string]safetensors.Tensor{"w.weight": counting(t, 4, 128)}
	require.NoError(t, safetensors.WriteFile("pipe/unet/diffusion_pytorch_model.safetensors", matrix, nil))
	require.NoError(t, safetensors.WriteFile("pipe/text_encoder/model.safetensors", matrix, nil))
	require.Contains(t, fails(t, 1, "cp", "pipe", "half", "--quantize", "fp8-channel", "--targets", "w.weight"), `no tensor matches "w.weight"`)
	require.NoDirExists(t, "half")
	succeeds(t, "cp", "pipe", "half", "--quantize", "fp8-channel", "--targets", "unet/*", "--with-files")
	listed := succeeds(t, "ls", "half", "--json")
	require.Contains(t, listed, `"unet/w.weight","dtype":"F8_E4M3"`)
	require.Contains(t, listed, `"text_encoder/w.weight","dtype":"F32"`)
	require.Contains(t, string(must(os.ReadFile("half/unet/config.json"))), "quantization_config")
	require.Equal(t, must(os.ReadFile("pipe/text_encoder/config.json")), must(os.ReadFile("half/text_encoder/config.json")))

	succeeds(t, "cp", "half", "plain", "--dequantize", "f32", "--with-files")
	listed = succeeds(t, "ls", "plain", "--json")
	require.Contains(t, listed, `"unet/w.weight","dtype":"F32"`)
	require.NotContains(t, listed, "F8_E4M3")
	require.Equal(t, must(os.ReadFile("pipe/text_encoder/model.safetensors")), must(os.ReadFile("plain/text_encoder/model.safetensors")))
}

// TestQuantisedSentences: a note about a quantised model of sentence-transformers says that this library cannot run it.
func TestQuantisedSentences(t *testing.T) {
	t.Chdir(t.TempDir())
	mkdir(t, "st")
	matrix := floats(t, []int{2, 2}, 1, 2, 3, 4)
	require.NoError(t, safetensors.WriteFile("st/model.safetensors", map[string]safetensors.Tensor{"encoder.query.weight": matrix}, nil))
	write(t, "st/config.json", `{"model_type": "bert"}`)
	const note = "sentence-transformers loads the quantised model, but cannot run it"
	require.NotContains(t, runs(t, "cp", "st", "plain", "--quantize", "fp8-channel").stderr, note)
	write(t, "st/modules.json", `[{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]`)
	require.Contains(t, runs(t, "cp", "st", "quantised", "--quantize", "fp8-channel").stderr, note)
	require.NotContains(t, runs(t, "cp", "st", "copy").stderr, note)
}
