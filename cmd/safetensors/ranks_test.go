package main

import (
	"archive/tar"
	"compress/bzip2"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// prepareRanks unpacks the folders of rank files that package dcp is tested with: joined/NAME, each beside
// NAME.safetensors with its whole tensors, and refused/NAME.
func prepareRanks(t *testing.T, dir string) []string {
	packed := must(os.Open(filepath.Join(repository, "dcp", "testdata", "ranks", "cases.tar.bz2")))
	defer packed.Close()
	all := filepath.Join(dir, "all")
	for r := tar.NewReader(bzip2.NewReader(packed)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if h.Typeflag == tar.TypeReg {
			name := filepath.Join(all, filepath.FromSlash(h.Name))
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o777))
			require.NoError(t, os.WriteFile(name, must(io.ReadAll(r)), 0o666))
		}
	}
	for _, kind := range []string{"joined", "refused"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, kind), 0o777))
	}
	for _, e := range must(os.ReadDir(all)) {
		kind, expected := "refused", filepath.Join(all, e.Name(), "expected.safetensors")
		if _, err := os.Stat(expected); err == nil {
			kind = "joined"
			require.NoError(t, os.Rename(expected, filepath.Join(dir, kind, e.Name()+".safetensors")))
		}
		require.NoError(t, os.Rename(filepath.Join(all, e.Name(), "ranks"), filepath.Join(dir, kind, e.Name())))
	}
	return nil
}

// TestRanksOtherNames: the files of ranks give the same other names of tied tensors as a file with their metadata.
func TestRanksOtherNames(t *testing.T) {
	t.Chdir(t.TempDir())
	tensors := map[string]safetensors.Tensor{"a": counting(t, 4, 2), "b": counting(t, 3)}
	require.NoError(t, safetensors.WriteFile("tied.safetensors", tensors, map[string]string{"format": "pt", "tied": "a"}))
	tensors["tied"] = tensors["a"]
	require.NoError(t, safetensors.WriteFile("both.safetensors", tensors, nil))
	require.NoError(t, os.WriteFile("sums", []byte(succeeds(t, "hash", "--tensors", "both.safetensors")), 0o666))
	succeeds(t, "cp", "tied.safetensors", "ranks", "--ranks", "2")
	for _, name := range []string{"tied.safetensors", "ranks"} {
		require.Equal(t, "equal\n", succeeds(t, "diff", "both.safetensors", name))
		require.Contains(t, succeeds(t, "show", name, "tied"), "[6 7]")
		require.Contains(t, succeeds(t, "verify", "--tensors", name, "sums"), "tied: OK")
		succeeds(t, "cp", name, "untied.npz", "--force")
		require.Equal(t, "equal\n", succeeds(t, "diff", "both.safetensors", "untied.npz"))
		succeeds(t, "cp", name, "renamed.safetensors", "--rename", "s/^/model./", "--force")
		require.Contains(t, succeeds(t, "meta", "renamed.safetensors"), "model.tied  model.a")
	}
}

// TestRanksOfEverySource copies each kind of source to files of ranks, with each way to name the folder. It has the files of
// ranks and no other weights, and the tensors that the copy has without --ranks.
func TestRanksOfEverySource(t *testing.T) {
	adapter := must(filepath.Abs("testdata/adapter"))
	t.Chdir(t.TempDir())
	writeRankSources(t)
	for name, args := range map[string][]string{
		"plain": {"model"}, "file": {"model/model.safetensors"}, "quantised now": {"model", "--quantize", "fp8-channel"}, "quantised before": {"quantised"},
		"dequantised": {"quantised", "--dequantize", "bf16"}, "adapter": {adapter}, "diffusers": {"pipe/unet"}, "shards": {"pipe/vae"}, "with files": {"model", "--with-files"},
		"component": {"pipe", "--only", "unet"}, "component with shards": {"pipe", "--only", "vae"}, "variant": {"model", "--variant", "fp16"},
		"several": {"model", "pipe/unet"}, "NumPy": {"model.npz"}, "ranks": {"before"}, "tied": {"model", "--tie"}, "renamed": {"model", "--rename", "s/^/x./"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{"cp", "-q"}, args...)
			withFiles := func(arg string) bool { return arg == "--with-files" }
			succeeds(t, append(slices.DeleteFunc(slices.Clone(args), withFiles), filepath.Join(dir, "plain.safetensors"))...)
			require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o777))
			for to, as := range map[string]string{
				"new": filepath.Join(dir, "new"), "slash": filepath.Join(dir, "slash") + "/", "above/below": filepath.Join(dir, "above", "below"),
				"empty": filepath.Join(dir, "empty"), "url": "file://" + filepath.ToSlash(filepath.Join(dir, "url")), "forced": filepath.Join(dir, "forced"),
			} {
				args := append(args, as, "--ranks", "2")
				if to == "forced" {
					args = append(args, "--force")
				}
				succeeds(t, args...)
				to = filepath.Join(dir, to)
				require.Equal(t, slices.ContainsFunc(args, withFiles), slices.Contains(list(t, to), "generation_config.json"))
				weights := slices.DeleteFunc(list(t, to), func(name string) bool { return !strings.Contains(name, "safetensors") })
				require.Equal(t, []string{"shard-00001-model-00001-of-00001.safetensors", "shard-00002-model-00001-of-00001.safetensors"}, weights)
				require.Equal(t, "equal\n", succeeds(t, "diff", to, filepath.Join(dir, "plain.safetensors")))
			}
		})
	}
}

// writeRankSources writes sources of every kind: model, quantised, the pipeline pipe, model.npz and before, which has files of ranks.
func writeRankSources(t *testing.T) {
	for _, dir := range []string{"model", "pipe/unet", "pipe/vae"} {
		require.NoError(t, os.MkdirAll(dir, 0o777))
		require.NoError(t, os.WriteFile(dir+"/config.json", []byte(`{"model_type":"llama"}`), 0o666))
	}
	require.NoError(t, os.WriteFile("model/generation_config.json", []byte("{}"), 0o666))
	require.NoError(t, os.WriteFile("pipe/model_index.json", []byte(`{"unet":["diffusers","UNet2DModel"],"vae":["diffusers","AutoencoderKL"]}`), 0o666))
	for name, layer := range map[string]string{
		"model/model": "layers.0", "model/model.fp16": "layers.0", "pipe/unet/diffusion_pytorch_model": "conv_in",
		"pipe/vae/diffusion_pytorch_model-00001-of-00002": "decoder", "pipe/vae/diffusion_pytorch_model-00002-of-00002": "encoder",
	} {
		tensors := map[string]safetensors.Tensor{layer + ".weight": counting(t, 4, 32), layer + ".bias": counting(t, 4)}
		require.NoError(t, safetensors.WriteFile(name+".safetensors", tensors, map[string]string{"format": "pt"}))
	}
	succeeds(t, "cp", "-q", "model", "quantised", "--quantize", "fp8-channel")
	succeeds(t, "cp", "-q", "model", "model.npz")
	succeeds(t, "cp", "-q", "model", "before", "--ranks", "3")
}
