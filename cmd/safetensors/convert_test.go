package main

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/format"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/stretchr/testify/require"
)

// writeQuantised writes a model of each layout of quant/testdata next to a plain tensor, and
// returns their layouts by folder.
func writeQuantised(t *testing.T) map[string]map[string]quant.Layout {
	t.Helper()
	names := must(filepath.Glob(filepath.Join(repository, "quant", "testdata", "*.safetensors")))
	for i, name := range names {
		names[i] = must(filepath.Abs(name))
	}
	t.Chdir(t.TempDir())
	models := make(map[string]map[string]quant.Layout)
	for _, name := range names {
		f := must(safetensors.Load(name))
		tensors := map[string]safetensors.Tensor{"plain.norm": floats(t, []int{2}, 0.1, 1)}
		for name, x := range f.Tensors() {
			if !strings.HasPrefix(name, "expect ") {
				tensors[name] = x
			}
		}
		config := f.Metadata()["config"]
		if config == "" || strings.HasPrefix(filepath.Base(name), "quantize-") {
			continue
		}
		folder := strings.TrimSuffix(filepath.Base(name), ".safetensors")
		require.NoError(t, safetensors.WriteShards(folder, tensors, nil, 1<<20))
		file := "config.json"
		if strings.Contains(config, `"producer"`) {
			file = "hf_quant_config.json"
		}
		write(t, filepath.Join(folder, file), config)
		models[folder] = must(quant.Layouts(tensors, []byte(config)))
	}
	require.Greater(t, len(models), 60)
	return models
}

// requireKept requires that a plain tensor of a model has a dtype in a copy of it, and that diff
// finds no difference in the tensors of layouts, bit by bit.
func requireKept(t *testing.T, layouts map[string]quant.Layout, dtype string, args ...string) {
	t.Helper()
	r := runs(t, append([]string{"diff"}, args...)...)
	require.Equal(t, 1, r.code, r.stderr)
	require.Contains(t, r.stdout, "! plain.norm: F32 [2] in A, "+dtype+" [2] in B", args)
	for line := range strings.Lines(r.stdout) {
		name, _, _ := strings.Cut(line[2:], ": ")
		require.NotContains(t, layouts, strings.TrimSpace(name), line)
	}
}

// TestConvertQuantised converts models of all layouts: parts of quantised tensors keep their
// dtype, and a plain tensor does not.
func TestConvertQuantised(t *testing.T) {
	models := writeQuantised(t)
	require.NoError(t, safetensors.WriteFile("extra.safetensors", map[string]safetensors.Tensor{"extra.scale": floats(t, []int{1}, 1e-9)}, nil))
	i := -1
	for folder, layouts := range models {
		if i++; testing.Short() && i%4 > 0 {
			continue
		}
		for dtype, flag := range map[string]string{"F16": "f16", "BF16": "bf16,f8_e4m3=f32"} {
			succeeds(t, "cp", folder, "copy", "--dtype", flag, "--max-shard-size", "1GB", "--with-files")
			requireKept(t, layouts, dtype, folder, "copy", "--dequantize")
			require.NoError(t, os.RemoveAll("copy"))
		}
		if i%8 > 0 {
			continue
		}
		for _, part := range []string{"1/2", "2/2"} { // which leave the configs to --with-files
			succeeds(t, "cp", "-q", folder, "copy", "--dtype", "f16", "--max-shard-size", "200B", "--with-files", "--part", part)
		}
		requireKept(t, layouts, "F16", folder, "copy", "--dequantize")
		require.NoError(t, os.RemoveAll("copy"))

		succeeds(t, "cp", folder, "extra.safetensors", "copy.safetensors", "--dtype", "f16", "--force")
		require.Contains(t, succeeds(t, "ls", "copy.safetensors", "--only", "extra.scale"), "scale  F16 ", "of a model that is not quantised")
		requireKept(t, layouts, "F16", folder, "copy.safetensors")
	}
}

// overflowing returns tensors of which two values become infinite in F16, each.
func overflowing(t *testing.T) map[string]safetensors.Tensor {
	inf := float32(math.Inf(1))
	x := floats(t, []int{2, 4}, 65519, 65520, -1e38, inf, -inf, float32(math.NaN()), 1, 0)
	return map[string]safetensors.Tensor{"x": x, "y": x, "plain": floats(t, []int{1}, 1)}
}

// TestTiedOverflow: values of tensors that share their data are counted once.
func TestTiedOverflow(t *testing.T) {
	f := &copyFlags{tie: true, conversions: map[safetensors.DType]safetensors.DType{safetensors.F32: safetensors.F16}}
	w := &copyJob{copyFlags: f, src: &source.Checkpoint{Contents: format.Contents{Tensors: overflowing(t)}, Order: []string{"x", "y", "plain"}}}
	require.NoError(t, w.prepare())
	require.Len(t, w.tensors, 2)
	for range 2 {
		var notes []string
		require.NoError(t, safetensors.Write(io.Discard, w.tensors, w.metadata))
		w.notes(func(text string) { notes = append(notes, text) })
		require.Equal(t, []string{"tensor x: 2 values became infinite"}, notes, "tied, and counted once")
	}
}
