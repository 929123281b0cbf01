package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestVariantNames copies a variant beside the model without a variant, and that model beside the variant, with each way to
// make shards, for the stems of transformers and of diffusers. The files have the names that these look for, both are read, and
// nothing is replaced.
func TestVariantNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, stem := range []string{"model", "diffusion_pytorch_model"} {
		writeVariants(t, stem)
		for name, c := range map[string]struct {
			flags  []string
			shards int
		}{
			"as it is":  {[]string{"-q"}, 1},
			"one":       {[]string{"--max-shard-size", "5GB"}, 1},
			"shards":    {[]string{"--max-shard-size", "300B"}, 4},
			"part":      {[]string{"--max-shard-size", "5GB", "--part", "1/1"}, 1},
			"parts":     {[]string{"--max-shard-size", "300B", "--part", "1/1"}, 4},
			"converted": {[]string{"--dtype", "bf16"}, 1},
			"fewer":     {[]string{"--max-shard-size", "300B", "--except", "layers.0"}, 3},
			"quantised": {[]string{"--max-shard-size", "5GB", "--quantize", "fp8-channel"}, 1},
			"aligned":   {[]string{"--max-shard-size", "300B", "--align", "64"}, 4},
		} {
			for _, both := range [][2]string{{"", "fp16"}, {"fp16", ""}} {
				t.Run(fmt.Sprintf("%s %s %s", stem, name, both[1]), func(t *testing.T) {
					dst, alone := filepath.Join(t.TempDir(), "dst"), filepath.Join(t.TempDir(), "alone")
					succeeds(t, as(both[0], "cp", "-q", stem, dst)...)
					before := tree(t, dst)
					for _, to := range []string{dst, alone} {
						succeeds(t, as(both[1], slices.Concat([]string{"cp", stem, to}, c.flags)...)...)
					}
					after := tree(t, dst)
					for name, content := range before {
						require.Equal(t, content, after[name], name)
						delete(after, name)
					}
					delete(after, planFile)
					delete(after, "config.json")
					require.Equal(t, variantNames(stem, both[1], c.shards), slices.Sorted(maps.Keys(after)))
					require.Equal(t, "equal\n", succeeds(t, as(both[0], "diff", dst, stem)...))
					require.Equal(t, "equal\n", succeeds(t, as(both[1], "diff", dst, alone)...))
				})
			}
		}
	}
}

// as returns a command line for a variant, or for the model without one.
func as(variant string, args ...string) []string {
	if variant == "" {
		return args
	}
	return append(args, "--variant", variant)
}

// variantNames returns the sorted names of the files of a variant with a number of shards.
func variantNames(stem, variant string, shards int) (names []string) {
	model, index := stem, ".safetensors.index.json"
	if variant != "" {
		model, index = stem+"."+variant, ".safetensors.index."+variant+".json"
	}
	if shards == 1 {
		return []string{model + ".safetensors"}
	}
	for i := range shards {
		names = append(names, fmt.Sprintf("%s-%05d-of-%05d.safetensors", model, i+1, shards))
	}
	return append(names, stem+index)
}

// writeVariants writes a folder that is called like the stem of its files: a model, and another one as its variant fp16.
func writeVariants(t *testing.T, stem string) {
	require.NoError(t, os.Mkdir(stem, 0o777))
	for name, n := range map[string]int{stem + ".safetensors": 64, stem + ".fp16.safetensors": 32} {
		tensors := make(map[string]safetensors.Tensor)
		for i := range 4 {
			tensors[fmt.Sprintf("layers.%d.weight", i)] = counting(t, 2, n)
		}
		require.NoError(t, safetensors.WriteFile(filepath.Join(stem, name), tensors, nil))
	}
}

// TestPartsOfVariants: parts of a variant replace the shards of an incomplete checkpoint without the variant, with --force, and
// refuse a complete one whose plan is in the folder.
func TestPartsOfVariants(t *testing.T) {
	t.Chdir(t.TempDir())
	writeVariants(t, "model")
	part := func(dst, part string, flags ...string) []string {
		return append([]string{"cp", "-q", "model", dst, "--max-shard-size", "300B", "--part", part}, flags...)
	}
	succeeds(t, part("torn", "1/2")...)
	require.Contains(t, fails(t, 3, part("torn", "1/1", "--variant", "fp16")...), "--force replaces it")
	succeeds(t, part("torn", "1/1", "--variant", "fp16", "--force")...)
	require.ElementsMatch(t, append(variantNames("model", "fp16", 4), planFile), list(t, "torn"))
	succeeds(t, part("complete", "1/1")...)
	before := tree(t, "complete")
	require.Contains(t, fails(t, 3, part("complete", "1/1", "--variant", "fp16", "--force")...), "complete holds a checkpoint")
	require.Equal(t, before, tree(t, "complete"))
}
