package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pythontest"
	"github.com/stretchr/testify/require"
)

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
		"sentences to/sentences --with-files",
	}
	for _, model := range []string{"llama", "tied"} {
		for _, kind := range []string{"", "-shards", "-bin", "-bin-shards"} {
			copies = append(copies, model+kind+" to/"+model+kind+" --with-files")
		}
	}
	// What is around the weights of a pipeline and of an adapter is copied without the command.
	weights := func(from, file string) {
		require.NoError(t, os.CopyFS("to/"+strings.Split(from, "/")[0], os.DirFS(strings.Split(from, "/")[0])))
		for _, old := range must(filepath.Glob("to/" + from + "/*model*")) {
			require.NoError(t, os.Remove(old))
		}
		copies = append(copies, from+" to/"+from+"/"+file)
	}
	for _, kind := range []string{"", "-bin"} {
		weights("pipeline"+kind+"/unet", "diffusion_pytorch_model.safetensors")
		copies = append(copies, "pipeline"+kind+"/unet to/pipeline"+kind+"/unet/diffusion_pytorch_model.fp16.safetensors --variant fp16")
		for _, name := range []string{"plain", "more", "bias"} {
			weights("adapter-"+name+kind, "adapter_model.safetensors")
			succeeds(t, "merge", "llama", "to/merged-adapter-"+name+kind+".safetensors", "--lora", "adapter-"+name+kind)
		}
	}
	copies = append(copies, "pipeline to/pipeline-whole --with-files", "pipeline-bin to/pipeline-half --with-files --dtype bf16")
	for _, args := range []string{
		"llama-shards to/merged-shards --lora adapter-plain --with-files", "llama to/merged-grown --lora adapter-grown",
		"llama to/merged-half --lora adapter-plain --dtype bf16", "mixture to/mixture --lora adapter-mixed",
	} {
		succeeds(t, append([]string{"merge"}, strings.Fields(args)...)...)
	}
	for _, args := range copies {
		succeeds(t, append([]string{"cp"}, strings.Fields(args)...)...)
	}
	python("compare")
}
