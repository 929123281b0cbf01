package main

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
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

// requireSameNumbers requires that two quantised models stand for the same numbers, bit by
// bit. layouts has their quantised tensors.
func requireSameNumbers(t *testing.T, layouts map[string]quant.Layout, want, got string) {
	t.Helper()
	a := must(quant.Open(want))
	defer a.Close()
	b := must(quant.Open(got))
	defer b.Close()
	require.Equal(t, a.Len(), b.Len())
	for name, x := range a.Tensors() {
		if _, ok := layouts[name]; !ok {
			continue
		}
		y := must(b.Tensor(name))
		require.Equal(t, x.DType(), y.DType(), "%s of %s", name, want)
		var p, q bytes.Buffer
		must(x.WriteTo(&p))
		must(y.WriteTo(&q))
		require.True(t, bytes.Equal(p.Bytes(), q.Bytes()), "%s of %s", name, want)
	}
}

// TestConvertQuantised converts models of all layouts: parts of quantised tensors keep their
// dtype, and a plain tensor does not.
func TestConvertQuantised(t *testing.T) {
	models := writeQuantised(t)
	extra := safetensors.WriteFile("extra.safetensors", map[string]safetensors.Tensor{"extra.scale": floats(t, []int{1}, 1e-9)}, nil)
	require.NoError(t, extra)
	i := -1
	for folder, layouts := range models {
		i++
		for _, dtype := range []string{"f16", "bf16,f8_e4m3=f32"} {
			r := runs(t, "cp", folder, "copy", "--dtype", dtype, "--max-shard-size", "1GB", "--with-files", "--force")
			require.Equal(t, 0, r.code, "%s: %s", folder, r.stderr)
			requireSameNumbers(t, layouts, folder, "copy")
			f := must(safetensors.Open("copy"))
			require.Equal(t, strings.ToUpper(dtype[:3]), (must(f.Tensor("plain.norm")).DType().String() + " ")[:3])
			require.NoError(t, f.Close())
			require.NoError(t, os.RemoveAll("copy"))
		}
		if i%8 > 0 {
			continue
		}
		for k := range 2 { // in parts, which leave the configs to --with-files
			part := []string{"1/2", "2/2"}[k]
			succeeds(t, "cp", "-q", folder, "copy", "--dtype", "f16", "--max-shard-size", "200B", "--with-files", "--part", part)
		}
		requireSameNumbers(t, layouts, folder, "copy")
		require.NoError(t, os.RemoveAll("copy"))

		require.Equal(t, 0, runs(t, "cp", folder, "extra.safetensors", "copy.safetensors", "--dtype", "f16", "--force").code)
		f := must(safetensors.Open("copy.safetensors"))
		require.Equal(t, safetensors.F16, must(f.Tensor("extra.scale")).DType(), "of a model that is not quantised")
		require.NoError(t, f.Close())
		require.NoError(t, os.Mkdir("copy", 0o777))
		require.NoError(t, os.Rename("copy.safetensors", "copy/model.safetensors"))
		requireSameParts(t, layouts, folder, "copy")
		require.NoError(t, os.RemoveAll("copy"))
	}
}

// requireSameParts requires that a model has the quantised tensors of another.
func requireSameParts(t *testing.T, layouts map[string]quant.Layout, want, got string) {
	t.Helper()
	a := must(safetensors.Load(want))
	b := must(safetensors.Load(got))
	for name, x := range a.Tensors() {
		y := must(b.Tensor(name))
		if _, ok := layouts[name]; ok {
			require.Equal(t, x.DType(), y.DType(), "%s of %s", name, want)
		}
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
	t.Chdir(t.TempDir())
	p := &plan{convert: map[safetensors.DType]safetensors.DType{safetensors.F32: safetensors.F16}}
	w := must(p.prepare(&source.Checkpoint{Tensors: overflowing(t), Order: []string{"x", "y", "plain"}}, copyFlags{tie: true}, nil))
	require.Len(t, w.tensors, 2)
	for range 2 {
		require.NoError(t, safetensors.WriteFile("tied.safetensors", w.tensors, w.metadata))
		require.Equal(t, []string{"tensor x: 2 values became infinite"}, w.convert.notes(), "tied, and counted once")
	}
}
