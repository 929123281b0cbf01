package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pythontest"
	"github.com/stretchr/testify/require"
)

// TestNewcomers has what people write who do not know the command yet, and what it says.
func TestNewcomers(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFiles(t, ".")
	for _, c := range []struct {
		name, args string
		code       int
		want       string
	}{
		{"meta without --in-place", "meta a.safetensors k=v", 0, "safetensors: note: nothing is written; --in-place changes a.safetensors\n"},
		{"meta --delete without it", "meta a.safetensors --delete format", 0, "note: nothing is written"},
		{"--rename without a match", "cp a.safetensors x --rename s/absent/y/", 1, `no tensor matches --rename "s/absent/y/"`},
		{"--rename of what an earlier one renamed", "cp a.safetensors x.safetensors --rename s/^embed/e/ --rename s/^embed/f/", 1, `no tensor matches --rename "s/^embed/f/"`},
		{"--rename to the same name", "cp a.safetensors x.safetensors --rename s/embed/embed/", 0, ""},
		{"--rename of diff", "diff a.safetensors b.safetensors --rename s/absent/y/", 1, `no tensor matches --rename "s/absent/y/"`},
		{"a size without a unit", "cp a.safetensors x --max-shard-size 5", 2, `"5" has no unit: expected a size like 5GB or 5B`},
		{"cp without DST", "cp a.safetensors", 2, "safetensors: expected SRC... DST, not 1 argument\n"},
		{"ls without SRC", "ls", 2, "safetensors: expected SRC..., not 0 arguments\n"},
		{"show without a tensor", "show a.safetensors", 2, "expected SRC NAME, not 1 argument"},
		{"verify without anything", "verify", 2, "expected SRC MANIFEST, not 0 arguments"},
		{"sign with two models", "sign a b", 2, "expected MODEL, not 2 arguments"},
		{"a repository without hf://", "ls owner/name", 1, "on the hub it is hf://owner/name\n"},
		{"a file that is missing", "ls shards/name", 1, "name"},
		{"codes", "show fp8 mlp.weight", 0, "safetensors: note: these are codes and scales of quantised tensors; --dequantize shows the numbers\n"},
		{"statistics of scales", "stats fp8 mlp", 0, "--dequantize shows the numbers"},
		{"codes and numbers", "diff fp8 a.safetensors", 1, "safetensors: note: one of the two has codes and scales of quantised tensors; --dequantize compares the numbers\n"},
		{"numbers and codes, a few", "diff a.safetensors fp8 --only norm.weight", 1, "--dequantize compares the numbers"},
		{"weights whose sum is not 1", "merge a.safetensors a.safetensors m.safetensors --weights 1,2", 0, "safetensors: note: the sum of the weights is 3; --normalize divides by it\n"},
		{"weights whose sum is 0", "merge a.safetensors a.safetensors m.safetensors --weights 1,-1 --normalize", 2, "--weights 1,-1: their sum is 0"},
		{"--normalize of tasks", "merge a.safetensors a.safetensors m.safetensors --method task --normalize", 2, "--normalize goes with --method linear"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := runs(t, strings.Fields(c.args)...)
			require.Equal(t, c.code, r.code, r.stderr)
			require.Contains(t, r.stderr, c.want)
			if c.want == "" {
				require.Empty(t, r.stderr)
			}
		})
	}
	require.NotContains(t, fails(t, 1, "ls", "shards/name"), "hf://")
	require.Empty(t, runs(t, "show", "fp8", "norm.weight").stderr, "a plain tensor")
	require.Empty(t, runs(t, "show", "fp8", "mlp.weight", "--dequantize").stderr)
	require.Empty(t, runs(t, "meta", "a.safetensors").stderr)
	for _, same := range []string{"diff fp8 fp8", "diff a.safetensors b.safetensors", "diff fp8 a.safetensors --dequantize"} {
		require.Empty(t, runs(t, strings.Fields(same)...).stderr, same)
	}
	require.NoFileExists(t, "x")

	require.NoError(t, safetensors.WriteFile("one.safetensors", map[string]safetensors.Tensor{"x": floats(t, []int{1}, 1)}, nil))
	require.NoError(t, safetensors.WriteFile("four.safetensors", map[string]safetensors.Tensor{"x": floats(t, []int{1}, 4)}, nil))
	require.Equal(t, result{"", "", 0}, runs(t, "merge", "one.safetensors", "four.safetensors", "n.safetensors", "--weights", "1,2", "--normalize"))
	require.Equal(t, "[3]\n", succeeds(t, "show", "n.safetensors", "x"))
	require.NoError(t, os.Remove("n.safetensors"))
}

// TestTorchNewcomers copies what PyTorch, transformers, diffusers, peft and
// sentence-transformers write, and lets them load the copies: see testdata/newcomers.py.
func TestTorchNewcomers(t *testing.T) {
	script := must(filepath.Abs("testdata/newcomers.py"))
	t.Chdir(t.TempDir())
	python := func(verb string) {
		t.Helper()
		pythontest.Run(t, "SAFETENSORS_TORCH", "torch,transformers,diffusers,peft,sentence_transformers", script, verb, ".")
	}
	python("make")
	copies := []string{
		"state.pt to/state.safetensors", "module.pt to/module.safetensors",
		"training.ckpt to/model.safetensors --key model", "training.ckpt to/optimizer.safetensors --key optimizer",
		"llama to/llama-fp16 --with-files --variant fp16", "llama-shards to/llama-shards-fp16 --with-files --variant fp16",
	}
	for _, model := range []string{"llama", "tied"} {
		for _, kind := range []string{"", "-shards", "-bin", "-bin-shards"} {
			copies = append(copies, model+kind+" to/"+model+kind+" --with-files")
		}
	}
	// What is around the weights of a pipeline, of an adapter and in subfolders is copied without the command.
	weights := func(from, file string) {
		require.NoError(t, os.CopyFS("to/"+strings.Split(from, "/")[0], os.DirFS(strings.Split(from, "/")[0])))
		for _, old := range must(filepath.Glob("to/" + from + "/*model*")) {
			require.NoError(t, os.Remove(old))
		}
		copies = append(copies, from+" to/"+from+"/"+file)
	}
	weights("sentences", "model.safetensors")
	for _, kind := range []string{"", "-bin"} {
		weights("pipeline"+kind+"/unet", "diffusion_pytorch_model.safetensors")
		copies = append(copies, "pipeline"+kind+"/unet to/pipeline"+kind+"/unet/diffusion_pytorch_model.fp16.safetensors --variant fp16")
		for _, name := range []string{"plain", "more", "bias"} {
			weights("adapter-"+name+kind, "adapter_model.safetensors")
			succeeds(t, "merge", "llama", "to/merged-adapter-"+name+kind+".safetensors", "--lora", "adapter-"+name+kind)
		}
	}
	for _, args := range copies {
		succeeds(t, append([]string{"cp"}, strings.Fields(args)...)...)
	}
	python("compare")
}
