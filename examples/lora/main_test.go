package main

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the adapter in testdata")

func matrix(t *testing.T, rows, columns int, values []float32) safetensors.Tensor {
	m, err := safetensors.NewTensor(safetensors.F32, []int{rows, columns}, values)
	require.NoError(t, err)
	return m
}

func convert(t *testing.T, x safetensors.Tensor, d safetensors.DType) safetensors.Tensor {
	x, err := x.Convert(d)
	require.NoError(t, err)
	return x
}

func values(t *testing.T, tensors map[string]safetensors.Tensor, name string) []float64 {
	v, err := safetensors.Append[float64](nil, tensors[name])
	require.NoError(t, err, name)
	return v
}

func raw(t *testing.T, x safetensors.Tensor) []byte {
	b, err := safetensors.Append[byte](nil, x)
	require.NoError(t, err)
	return b
}

// writeAdapter writes an adapter as peft does.
func writeAdapter(t *testing.T, dir string, tensors map[string]safetensors.Tensor, config string) {
	require.NoError(t, os.MkdirAll(dir, 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte(config), 0o666))
	require.NoError(t, safetensors.WriteFile(filepath.Join(dir, "adapter_model.safetensors"), tensors, map[string]string{"format": "pt"}))
}

// requireMerged runs the program and compares what it writes with float64 maths.
// adapted maps the base tensors that have an adapter to the stems of its names.
func requireMerged(t *testing.T, base, adapterDir string, adapted map[string]string, scale float64) {
	var out bytes.Buffer
	dir := t.TempDir()
	require.NoError(t, run([]string{base, adapterDir, dir}, &out))
	var files []map[string]safetensors.Tensor
	for _, name := range []string{base, filepath.Join(adapterDir, "adapter_model.safetensors"), dir} {
		f, err := safetensors.Load(name)
		require.NoError(t, err)
		files = append(files, maps.Collect(f.Tensors()))
	}
	before, adapter, after := files[0], files[1], files[2]
	require.Equal(t, fmt.Sprintf("merged %d of %d tensors with scale %g into %s\n", len(adapted), len(before), scale, dir), out.String())
	require.Len(t, after, len(before))
	for name, w := range before {
		stem, ok := adapted[name]
		if !ok {
			require.Equal(t, w.String(), after[name].String(), name)
			require.Equal(t, raw(t, w), raw(t, after[name]), name)
			continue
		}
		require.Equal(t, safetensors.BF16, after[name].DType())
		want, got := values(t, before, name), values(t, after, name)
		a, b := values(t, adapter, stem+".lora_A.weight"), values(t, adapter, stem+".lora_B.weight")
		in := w.Shape()[1]
		r := len(a) / in
		for i := range want {
			size := 0.0 // of the terms, which may cancel out
			for k := range r {
				want[i] += scale * b[i/in*r+k] * a[k*in+i%in]
				size += max(scale*b[i/in*r+k]*a[k*in+i%in], -scale*b[i/in*r+k]*a[k*in+i%in])
			}
			require.InDelta(t, want[i], got[i], max(want[i], -want[i])/256+size/1e5, "%s, element %d", name, i)
		}
	}
}

// randomModel returns a base model and an adapter of rank 3 for two of its weights.
func randomModel(t *testing.T) (base, adapter map[string]safetensors.Tensor) {
	random := rand.New(rand.NewPCG(1, 2))
	normal := func(rows, columns int) safetensors.Tensor {
		v := make([]float32, rows*columns)
		for i := range v {
			v[i] = float32(random.NormFloat64())
		}
		return matrix(t, rows, columns, v)
	}
	base = map[string]safetensors.Tensor{
		"h.0.q.weight": convert(t, normal(6, 5), safetensors.BF16),
		"h.0.v.weight": normal(4, 7),
		"h.0.o.weight": convert(t, normal(4, 4), safetensors.F16),
	}
	adapter = map[string]safetensors.Tensor{
		"base_model.model.h.0.q.lora_A.weight": normal(3, 5),
		"base_model.model.h.0.q.lora_B.weight": normal(6, 3),
		"base_model.model.h.0.v.lora_A.weight": convert(t, normal(3, 7), safetensors.F16),
		"base_model.model.h.0.v.lora_B.weight": convert(t, normal(4, 3), safetensors.BF16),
	}
	return base, adapter
}

func TestMerge(t *testing.T) {
	tensors, adapter := randomModel(t)
	base, dir := filepath.Join(t.TempDir(), "base"), t.TempDir()
	require.NoError(t, safetensors.WriteShards(base, tensors, nil, 100)) // which has an index
	adapted := map[string]string{"h.0.q.weight": "base_model.model.h.0.q", "h.0.v.weight": "base_model.model.h.0.v"}
	writeAdapter(t, dir, adapter, `{"r":3,"lora_alpha":6,"fan_in_fan_out":false,"rank_pattern":{},"target_modules":["q","v"]}`)
	requireMerged(t, base, dir, adapted, 2)
	writeAdapter(t, dir, adapter, `{"r":4,"lora_alpha":6,"use_rslora":true}`)
	requireMerged(t, filepath.Join(base, "model.safetensors.index.json"), dir, adapted, 3)
}

// TestModel merges the adapter in testdata, which go test -update writes.
func TestModel(t *testing.T) {
	adapter, adapted := map[string]safetensors.Tensor{}, map[string]string{}
	for layer := range 2 {
		for k, module := range []string{"q_proj", "v_proj"} {
			stem := fmt.Sprintf("model.layers.%d.self_attn.%s", layer, module)
			adapted[stem+".weight"] = "base_model.model." + stem
			a, b := make([]float32, 2*32), make([]float32, 32*2)
			for i := range a {
				a[i] = float32((i*7+layer*3+k)%17-8) / 512
				b[i] = float32((i*5+layer+k*11)%13-6) / 64
			}
			adapter["base_model.model."+stem+".lora_A.weight"] = matrix(t, 2, 32, a)
			adapter["base_model.model."+stem+".lora_B.weight"] = matrix(t, 32, 2, b)
		}
	}
	dir := t.TempDir()
	if *update {
		dir = "testdata"
	}
	writeAdapter(t, dir, adapter, "{\n  \"peft_type\": \"LORA\",\n  \"r\": 2,\n  \"lora_alpha\": 4,\n  \"use_rslora\": false,\n  \"fan_in_fan_out\": false\n}\n")
	for _, name := range []string{"adapter_model.safetensors", "adapter_config.json"} {
		want, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	requireMerged(t, "../../testdata/model.safetensors", "testdata", adapted, 2)
}
