package checkpoint_test

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/stretchr/testify/require"
)

// TestStatesOfJobs: the state of a training job is no model. Beside a model, whatever it contains, it is no finding,
// and alone it is an error that says so.
func TestStatesOfJobs(t *testing.T) {
	model := weights(t, map[string]float32{"x": 1})
	states := map[string]string{"optimizer.pt": "", "scheduler.pt": "x", "rng_state.pth": "", "rng_state_1.pth": "", "training_args.bin": "\x80\x02}."}
	for _, name := range []string{"model.safetensors", "pytorch_model.bin"} {
		whole := maps.Clone(states)
		whole[name] = map[string]string{"model.safetensors": model, "pytorch_model.bin": torchFile(t, map[string]float32{"x": 1})}[name]
		require.Empty(t, check(t, files(whole)), name)
		_, err := checkpoint.OpenFS(files(whole), ".")
		require.NoError(t, err)
	}
	_, err := checkpoint.OpenFS(files(states), ".")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, `only the state of a training job is in it, such as "optimizer.pt", no model`)
	require.Equal(t, []string{`missing: the directory has no weights: only the state of a training job is in it, such as "optimizer.pt", no model`}, check(t, files(states)))
	_, err = checkpoint.Models(files(states), ".")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestLinksOfStates: links to nothing and out of the directory are no findings if they have the names of states of a
// training job.
func TestLinksOfStates(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it needs links")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.safetensors"), []byte(weights(t, map[string]float32{"x": 1})), 0o666))
	for name, target := range map[string]string{"optimizer.pt": "gone", "training_args.bin": filepath.Join(t.TempDir(), "gone"), "rng_state.pth": "../../x"} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	require.Empty(t, check(t, os.DirFS(dir)))
}

// TestCTranslate2: the model of CTranslate2 is no file of torch.save, although its name has that ending. Beside
// another model it is no finding.
func TestCTranslate2(t *testing.T) {
	const content = "\x06\x00\x00\x00\x10\x00TransformerSpec\x00"
	for _, vocabulary := range []string{"vocabulary.json", "vocabulary.txt", "shared_vocabulary.json", "source_vocabulary.txt"} {
		model := map[string]string{"config.json": "{}", "model.bin": content, vocabulary: ""}
		_, err := checkpoint.OpenFS(files(model), ".")
		require.ErrorContains(t, err, `"model.bin" is of CTranslate2: ctranslate2 reads it`)
		found := check(t, files(model))
		require.Len(t, found, 1)
		require.Contains(t, found[0], `missing: the directory has no weights: no .safetensors file in it, and "model.bin" is of CTranslate2`)
		model["model.safetensors"] = weights(t, map[string]float32{"x": 1})
		require.Empty(t, check(t, files(model)))
	}
	require.Len(t, check(t, files(map[string]string{"model.bin": content, "model.safetensors": weights(t, map[string]float32{"x": 1}), "vocab.json": ""})), 1)
}

// TestBesideOtherFormats: files of Keras, Flax and others beside a model by torch.save do not keep it from being opened.
func TestBesideOtherFormats(t *testing.T) {
	for _, name := range []string{"pytorch_model.bin", "adapter_model.bin", "diffusion_pytorch_model.bin"} {
		model := map[string]string{name: torchFile(t, map[string]float32{"x": 1}), "tf_model.h5": "", "flax_model.msgpack": "", "model.onnx": ""}
		require.Empty(t, check(t, files(model)), name)
		f, err := checkpoint.OpenFS(files(model), ".")
		require.NoError(t, err)
		require.Equal(t, 1, f.Len())
	}
}
