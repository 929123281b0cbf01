package main

import (
	"crypto/elliptic"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// writePipeline writes the folder pipe of a pipeline: a model with a variant in shards.
func writePipeline(t *testing.T) {
	t.Helper()
	plain := map[string]safetensors.Tensor{"x": floats(t, []int{1}, 1), "y": floats(t, []int{1}, 2)}
	require.NoError(t, os.MkdirAll("pipe/unet", 0o777))
	require.NoError(t, os.MkdirAll("pipe/scheduler", 0o777))
	require.NoError(t, safetensors.WriteFile("pipe/unet/m.safetensors", plain, nil))
	for name, file := range map[string]string{"x": "pipe/unet/m.fp16-00001-of-00002.safetensors", "y": "pipe/unet/m.fp16-00002-of-00002.safetensors"} {
		half := must(plain[name].Convert(safetensors.F16))
		require.NoError(t, safetensors.WriteFile(file, map[string]safetensors.Tensor{name: half}, nil))
	}
	for name, text := range map[string]string{
		"pipe/model_index.json":      "{}",
		"pipe/scheduler/config.json": "{}",
		"pipe/unet/config.json":      "{}",
		"pipe/unet/m.safetensors.index.fp16.json": `{"weight_map":{"x":"m.fp16-00001-of-00002.safetensors",
			"y":"m.fp16-00002-of-00002.safetensors"}}`,
	} {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
	}
}

// TestVariants: a folder is its model, --variant takes another.
func TestVariants(t *testing.T) {
	t.Chdir(t.TempDir())
	writePipeline(t)
	const variant = "--variant=fp16"
	for _, verb := range [][]string{{"ls", "pipe/unet"}, {"stats", "pipe/unet"}, {"ls", "pipe/unet/m.safetensors.index.fp16.json"}} {
		succeeds(t, verb...)
	}
	require.Contains(t, succeeds(t, "ls", "pipe/unet"), "\nF32          2 ")
	require.Contains(t, succeeds(t, "ls", "pipe/unet", variant), "\nF16          2 ")
	require.Equal(t, "[2]\n", succeeds(t, "show", "pipe/unet", "y", variant))
	succeeds(t, "cp", "pipe/unet", "plain.safetensors")
	succeeds(t, "cp", "pipe/unet", "half", variant, "--with-files")
	require.Contains(t, succeeds(t, "ls", "plain.safetensors"), "\nF32          2 ")
	require.Contains(t, succeeds(t, "ls", "half"), "\nF16          2 ")
	require.Equal(t, []string{"config.json", "model.safetensors"}, list(t, "half"), "an index of a variant does not come along")

	for _, c := range []struct{ rule, args, want string }{
		{"a variant that exists", "ls pipe/unet --variant bf16", "pipe/unet: no file of the variant bf16 in it: file does not exist"},
		{"a folder, no file", "ls plain.safetensors --variant fp16", "a variant is selected in a folder, and this is none"},
		{"no index", "ls pipe/unet/m.safetensors.index.fp16.json --variant fp16", "a variant is selected in a folder"},
		{"no standard input", "ls - --variant fp16", "a variant is selected in a folder"},
		{"no URL", "ls http://127.0.0.1:1/x.safetensors --variant fp16", "a variant is selected in a folder"},
		{"no repository that is not here", "ls hf://owner/name --variant fp16", "not in the cache: name its file"},
		{"no pipeline", "ls pipe", "pipe: no .safetensors file in it, only in folders of its pipeline: unet: file does not exist"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			require.Contains(t, fails(t, 1, strings.Fields(c.args)...), c.want)
		})
	}
	require.Contains(t, fails(t, 2, "verify", "pipe/unet", "--hub", "o/n", variant), "--variant goes with a MANIFEST only")
	require.Contains(t, fails(t, 2, "check", "pipe/unet", variant), "unknown flag")
}

// TestVariantsAgree: hash reads the files of the model, or of one variant. Together they
// are those that check reads, and sign covers them with all others.
func TestVariantsAgree(t *testing.T) {
	t.Chdir(t.TempDir())
	writePipeline(t)
	hashed := func(args ...string) (names []string) {
		for line := range strings.Lines(succeeds(t, append([]string{"hash", "pipe/unet"}, args...)...)) {
			names = append(names, strings.Fields(line)[1])
		}
		return names
	}
	plain, half := hashed(), hashed("--variant", "fp16")
	require.Equal(t, []string{"m.safetensors"}, plain)
	require.Equal(t, []string{"m.fp16-00001-of-00002.safetensors", "m.fp16-00002-of-00002.safetensors", "m.safetensors.index.fp16.json"}, half)
	both := slices.Sorted(slices.Values(append(plain, half...)))
	var checked []string
	for line := range strings.Lines(succeeds(t, "check", "pipe/unet")) {
		name, _, _ := strings.Cut(strings.TrimPrefix(filepath.ToSlash(strings.Fields(line)[1]), "pipe/unet/"), ":")
		checked = append(checked, name)
	}
	require.Equal(t, both, checked)
	require.Equal(t, succeeds(t, "check", "pipe/unet"), succeeds(t, "check", "pipe"), "of a pipeline the same")

	writeKeys(t, "key", elliptic.P256())
	succeeds(t, "sign", "pipe/unet", "--key", "key.pem")
	var signed struct{ Files []struct{ Name string } }
	require.NoError(t, json.Unmarshal([]byte(succeeds(t, "verify", "pipe/unet", "--signature", "pipe/unet.sig", "--public-key", "key.pub", "--json")), &signed))
	var names []string
	for _, f := range signed.Files {
		names = append(names, f.Name)
	}
	require.Equal(t, append([]string{"config.json"}, both...), names)
	require.Contains(t, fails(t, 1, "sign", "pipe/unet", "--key", "key.pem", "--force", "--ignore", "m.fp16-00002-of-00002.safetensors"),
		"m.safetensors.index.fp16.json names m.fp16-00002-of-00002.safetensors, which would not be signed")

	manifest := succeeds(t, "hash", "pipe/unet", "--variant", "fp16")
	require.Equal(t, 0, runsWith(t, []byte(manifest), "verify", "pipe/unet", "-", "--variant", "fp16").code)
	require.Equal(t, 1, runsWith(t, []byte(manifest), "verify", "pipe/unet", "-").code)
}

// TestVariantsOfTorch: a folder of files of PyTorch has variants, too. hash, check and sign
// agree on its files.
func TestVariantsOfTorch(t *testing.T) {
	folders := must(filepath.Abs("../../torch/testdata/folders"))
	t.Chdir(t.TempDir())
	require.NoError(t, os.MkdirAll("pipe/unet", 0o777))
	for name, from := range map[string]string{
		"m.bin": "adapter/adapter_model.bin", "m.fp16-00001-of-00002.bin": "shards/pytorch_model-00001-of-00002.bin",
		"m.fp16-00002-of-00002.bin": "adapter/adapter_model.bin",
	} {
		require.NoError(t, os.WriteFile("pipe/unet/"+name, must(os.ReadFile(filepath.Join(folders, filepath.FromSlash(from)))), 0o666))
	}
	write(t, "pipe/unet/config.json", "{}")
	write(t, "pipe/model_index.json", "{}")
	write(t, "pipe/unet/m.bin.index.fp16.json", `{"weight_map":{"a":"m.fp16-00001-of-00002.bin","a.t":"m.fp16-00001-of-00002.bin","b":"m.fp16-00002-of-00002.bin"}}`)
	half := filepath.Join(folders, "shards.safetensors")
	succeeds(t, "diff", "pipe/unet", filepath.Join(folders, "adapter.safetensors"))
	succeeds(t, "diff", "pipe/unet/m.bin.index.fp16.json", half)
	succeeds(t, "cp", "pipe/unet", "half", "--variant", "fp16", "--with-files")
	succeeds(t, "diff", "half", half)
	require.Equal(t, []string{"config.json", "model.safetensors"}, list(t, "half"))

	require.Equal(t, "ok       pipe/unet: 1 tensor, 4 B\n", succeeds(t, "check", "pipe/unet"))
	require.Contains(t, succeeds(t, "hash", "pipe/unet"), "  m.bin\n")
	require.Contains(t, succeeds(t, "hash", "pipe/unet", "--variant", "fp16"), "  m.fp16-00002-of-00002.bin\n")
	writeKeys(t, "key", elliptic.P256())
	require.Contains(t, fails(t, 1, "sign", "pipe", "--key", "key.pem", "--ignore", "unet/m.fp16-00002-of-00002.bin"),
		"unet/m.bin.index.fp16.json names unet/m.fp16-00002-of-00002.bin, which would not be signed")
}
