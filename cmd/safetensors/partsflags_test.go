package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// notInParts are the flags of cp that parts refuse, those that make no difference to the bytes, and those with which the test
// calls every copy.
var notInParts = append([]string{"ranks", "max-shard-size"}, unplanned...)

// TestPartsFlags copies with each flag of cp that makes a difference to the bytes, into several shards and into one: in parts,
// in parts once more, and without parts. The files are the same, and the second run of a part finds the shards of the first.
func TestPartsFlags(t *testing.T) {
	pickled := must(filepath.Abs(filepath.Join(repository, "torch", "testdata", "checkpoint.pt")))
	t.Chdir(t.TempDir())
	writeFlagSources(t)
	commands := map[string][]string{
		"dtype":        {"src", "--dtype", "bf16"},
		"with-files":   {"src", "--with-files"},
		"only":         {"src", "--only", "layers.[0-3].*"},
		"except":       {"src", "--except", "layers.1"},
		"rename":       {"src", "--rename", "s/layers/blocks/"},
		"dequantize":   {"quantised", "--dequantize", "f32"},
		"quantize":     {"src", "--quantize", "fp8-channel"},
		"targets":      {"src", "--quantize", "fp8-channel", "--targets", "layers.2"},
		"align":        {"src", "--align", "4096"},
		"align of 8":   {"src", "--align", "8"},
		"align of 512": {"src", "--align", "512", "--meta", "a=b"},
		"meta":         {"src", "--meta", "a=b"},
		"without-meta": {"src", "--without-meta"},
		"tie":          {pickled, "--key", "model.state_dict", "--tie"},
		"key":          {pickled, "--key", "model.state_dict"},
		"variant":      {"src", "--variant", "fp16"},
		"no flag":      {"src"},
	}
	new(command).cp().Flags().VisitAll(func(f *pflag.Flag) {
		require.True(t, slices.Contains(notInParts, f.Name) || commands[f.Name] != nil, f.Name)
	})
	for name, args := range commands {
		for _, size := range []string{"5GB", "20kB", "16B"} {
			t.Run(name+" "+size, func(t *testing.T) {
				dir := t.TempDir()
				whole, dst := filepath.Join(dir, "whole"), filepath.Join(dir, "parts")
				args := append([]string{"cp", "-q", args[0], "--max-shard-size", size}, args[1:]...)
				succeeds(t, append(args, whole)...)
				part := func(k int) string {
					return succeeds(t, append(args, dst, "--json", "--part", fmt.Sprintf("%d/2", k))...)
				}
				require.Contains(t, part(2)+part(1), `"complete":true`)
				require.Equal(t, tree(t, whole), withoutPlan(t, tree(t, dst)))
				for k := 1; k <= 2; k++ {
					require.Regexp(t, `"written":\[\],.*"complete":true`, part(k))
				}
			})
		}
	}
}

// writeFlagSources writes the folder src, which has a model with tied tensors, its variant fp16 and other files, and quantised,
// the same model as codes and scales.
func writeFlagSources(t *testing.T) {
	require.NoError(t, os.Mkdir("src", 0o777))
	tensors := make(map[string]safetensors.Tensor)
	for i := range 6 {
		tensors[fmt.Sprintf("layers.%d.weight", i)] = counting(t, 32, 32+32*(i%2))
	}
	meta := map[string]string{"format": "pt", "head.weight": "layers.0.weight"}
	require.NoError(t, safetensors.WriteFile("src/model.safetensors", tensors, meta))
	require.NoError(t, os.WriteFile("src/config.json", []byte(`{"model_type":"llama","dtype":"float32"}`), 0o666))
	succeeds(t, "cp", "-q", "src/model.safetensors", "src/model.fp16.safetensors", "--dtype", "f16")
	succeeds(t, "cp", "-q", "src", "quantised", "--quantize", "fp8-channel")
}
