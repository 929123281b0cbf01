package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestDequantizedModels dequantises a model of each family, made by its own package, and
// lets transformers load the copy: see quant/testdata/families.py.
func TestDequantizedModels(t *testing.T) {
	python := programOf(t, "SAFETENSORS_QUANT_PYTHON") // which has quant/testdata/requirements.txt
	script := must(filepath.Abs("../../quant/testdata/families.py"))
	t.Chdir(t.TempDir())
	families := func(verb string) {
		t.Helper()
		out, err := exec.Command(python, "-B", script, verb, ".").CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	families("make")
	made := must(filepath.Glob("*.expect.safetensors"))
	require.Greater(t, len(made), 25)
	for _, name := range made {
		name = strings.TrimSuffix(name, ".expect.safetensors")
		require.Contains(t, succeeds(t, "ls", name), "QUANTISED")
		succeeds(t, "cp", name, name+"-plain", "--dequantize", "bf16")
	}
	families("compare")
}

// TestQuantizedInBuckets quantises from a bucket into one, and back: the config.json goes
// with the weights.
func TestQuantizedInBuckets(t *testing.T) {
	all := clouds(t)
	require.NoError(t, safetensors.WriteShards("plain", map[string]safetensors.Tensor{
		"a.q_proj.weight": counting(t, 4, 128), "norm.weight": counting(t, 3),
	}, nil, 1<<20))
	write(t, "plain/config.json", `{"model_type": "llama"}`)
	write(t, "plain/tokenizer.json", `{}`)
	for name, c := range all {
		t.Run(name, func(t *testing.T) {
			config := func(folder string) (parsed map[string]any) {
				t.Helper()
				require.NoError(t, json.Unmarshal([]byte(c.objects()[folder+"/config.json"]), &parsed))
				require.Equal(t, "llama", parsed["model_type"])
				return parsed
			}
			require.Contains(t, succeeds(t, "cp", "plain", c.at("int8"), "--quantize", "int8", "--max-shard-size", "1GB", "--with-files", "--json"),
				`"files":["config.json","tokenizer.json"]`)
			require.Contains(t, config("int8"), "quantization_config")
			require.Equal(t, "{}", c.objects()["int8/tokenizer.json"])

			succeeds(t, "cp", c.at("int8"), c.at("back"), "--dequantize", "f32", "--max-shard-size", "1GB")
			require.NotContains(t, config("back"), "quantization_config")
			require.NotContains(t, c.objects(), "back/tokenizer.json")
			require.Contains(t, runs(t, "diff", "plain", c.at("back")).stdout, "in 447 of 512 elements, the most by 2.004")
			require.Equal(t, "equal\n", succeeds(t, "diff", c.at("int8"), c.at("back"), "--dequantize"))

			before := c.objects()
			require.Contains(t, fails(t, 1, "cp", "plain", c.at("int8"), "--quantize", "int4"), "--force replaces it")
			require.Equal(t, before, c.objects())
			succeeds(t, "cp", "plain", c.at("one.safetensors"), "--quantize", "int8")
			require.Len(t, c.objects(), len(before)+1, "one file, without a config.json next to it")
		})
	}
}

// TestNotesOnQuantised: --dtype of a model whose scales it does not touch names --dequantize, and
// --quantize says which share of all parameters is in fused experts.
func TestNotesOnQuantised(t *testing.T) {
	t.Chdir(t.TempDir())
	tensor := func(d safetensors.DType, shape ...int) safetensors.Tensor {
		n := 1
		for _, s := range shape {
			n *= s
		}
		return must(safetensors.NewTensor(d, shape, make([]byte, n*d.Bits()/8)))
	}
	require.NoError(t, safetensors.WriteShards("mx", map[string]safetensors.Tensor{
		"a.weight_packed": tensor(safetensors.U8, 2, 16), "a.weight_scale": tensor(safetensors.U8, 2, 1), "norm.weight": tensor(safetensors.F32, 2),
	}, nil, 1<<20))
	const dequantize = "note: quantised tensors stayed as they are; --dequantize writes the numbers"
	require.Contains(t, runs(t, "cp", "mx", "half", "--dtype", "bf16").stderr, dequantize)
	require.NotContains(t, runs(t, "cp", "mx", "plain", "--dequantize", "f32", "--dtype", "f32=bf16").stderr, dequantize)
	require.NotContains(t, runs(t, "cp", "mx", "copy").stderr, dequantize)

	require.NoError(t, safetensors.WriteShards("moe", map[string]safetensors.Tensor{
		"l.experts.up": tensor(safetensors.BF16, 3, 128, 128), "l.q_proj.weight": tensor(safetensors.BF16, 128, 128),
	}, nil, 1<<20))
	const fused = "note: 1 tensor of several matrices, such as those of fused experts, stayed as it was: 75 % of all parameters"
	require.Contains(t, runs(t, "cp", "moe", "int4", "--quantize", "int4").stderr, fused)
	require.NoError(t, safetensors.WriteShards("narrow", map[string]safetensors.Tensor{
		"b.weight": tensor(safetensors.BF16, 1, 64), "c.weight": tensor(safetensors.BF16, 1, 64), "l.q_proj.weight": tensor(safetensors.BF16, 3, 128),
		"embed_tokens.weight": tensor(safetensors.BF16, 2, 64),
	}, nil, 1<<20))
	const narrow = "note: 2 tensors stayed as they were, 20 % of all parameters, because their columns are not whole groups of int4: b.weight, …"
	require.Contains(t, runs(t, "cp", "narrow", "narrow4", "--quantize", "int4").stderr, narrow)
	require.NotContains(t, runs(t, "cp", "narrow", "targets", "--quantize", "int4", "--targets", "l.*").stderr, "stayed as")
	require.NotContains(t, runs(t, "cp", "narrow", "narrow8", "--quantize", "fp8-channel").stderr, "stayed as")
	require.NoError(t, safetensors.WriteShards("conv", map[string]safetensors.Tensor{
		"conv.weight": tensor(safetensors.BF16, 128, 128, 1, 1), "l.experts.w1": tensor(safetensors.BF16, 128, 128), "l.q_proj.weight": tensor(safetensors.BF16, 128, 128),
		"l.q_proj.bias": tensor(safetensors.BF16, 128), "position_ids": tensor(safetensors.I64, 128, 128),
	}, nil, 1<<20))
	const others = "note: 2 tensors whose names or shapes are not those of matrices of linear modules, such as conv.weight, stayed as they were: 50 % of all parameters"
	require.Contains(t, runs(t, "cp", "conv", "conv4", "--quantize", "int4").stderr, others)
	require.NotContains(t, runs(t, "cp", "conv", "chosen", "--quantize", "int4", "--targets", "l.q_proj").stderr, "stayed as")
	require.Contains(t, fails(t, 1, "cp", "moe", "none", "--quantize", "int4", "--targets", "l.experts"), "holds several matrices, such as those of fused experts")
}

// TestNotesOnIdleWeights: quantised weights that transformers loads, but cannot compute with, are noted.
func TestNotesOnIdleWeights(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, safetensors.WriteShards("model", map[string]safetensors.Tensor{
		"a.weight": must(safetensors.NewTensor(safetensors.F32, []int{2, 192}, make([]float32, 2*192))),
		"b.weight": must(safetensors.NewTensor(safetensors.F32, []int{1, 256}, make([]float32, 256))),
		"c.weight": must(safetensors.NewTensor(safetensors.F32, []int{1, 64}, make([]float32, 64))),
	}, nil, 1<<20))
	const (
		groups = "note: the columns of 2 quantised tensors, such as a.weight, are not whole groups of 128: transformers loads the model, but cannot run it"
		dtype  = "note: 3 quantised tensors, such as a.weight, had another dtype than BF16: transformers loads the model, but cannot run it"
	)
	for _, run := range []struct{ flags, note string }{
		{"fp8-block", groups}, {"fp8-block --targets b.*", ""}, {"nvfp4", dtype}, {"mxfp4", dtype}, {"mxfp4 --dtype f16", dtype}, {"nvfp4 --dtype bf16", ""},
		{"fp8-channel", ""}, {"int8 --targets b.*", ""},
	} {
		notes := runs(t, strings.Fields("cp model q --force --quantize "+run.flags)...).stderr
		require.Contains(t, notes, run.note, run.flags)
		if run.note == "" {
			require.NotContains(t, notes, "cannot run it", run.flags)
		}
	}
}
