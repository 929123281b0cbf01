package merge

import (
	"maps"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/stretchr/testify/require"
)

const module = "base_model.model.model.layers.0.q_proj"

// updated returns w + scale·b·a in float64. w is [out, in].
func updated(w, b, a []float64, out, in, r int, scale float64) []float64 {
	sum := make([]float64, len(w))
	for i := range out {
		for j := range in {
			sum[i*in+j] = w[i*in+j]
			for k := range r {
				sum[i*in+j] += scale * b[i*r+k] * a[k*in+j]
			}
		}
	}
	return sum
}

func transposed(x []float64, rows, columns int) []float64 {
	t := make([]float64, len(x))
	for i := range rows {
		for j := range columns {
			t[j*rows+i] = x[i*columns+j]
		}
	}
	return t
}

// requireNear requires that the values of a tensor are within the error of a few
// float32 operations.
func requireNear(t *testing.T, want []float64, tensor safetensors.Tensor) {
	got := values(t, tensor)
	require.Len(t, got, len(want))
	for i, x := range want {
		if math.Abs(x-got[i]) > 2e-5 {
			t.Fatalf("element %d is %g, expected %g", i, got[i], x)
		}
	}
}

// TestLoRA compares W + scale·B·A, for all ways to give the scale and shapes around the size of a
// block, with the sum in float64.
func TestLoRA(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for _, size := range [][3]int{{5, 7, 2}, {64, 33, 8}, {3000, 1500, 4}, {2, blocks.Elements + 1, 1}, {0, 4, 2}} {
		out, in, r := size[0], size[1], size[2]
		w, x := random(t, rnd, safetensors.F32, out, in)
		b, y := random(t, rnd, safetensors.BF16, out, r)
		a, z := random(t, rnd, safetensors.BF16, r, in)
		adapter := checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}
		for config, scale := range map[string]float64{
			`{"lora_alpha": 3}`: 3 / float64(r),
			`{"peft_type": "LORA", "lora_alpha": 3, "use_rslora": true}`:                                       3 / math.Sqrt(float64(r)),
			`{"lora_alpha": 3, "alpha_pattern": {"q_proj": 5, "k_proj": 6}}`:                                   5 / float64(r),
			`{"lora_alpha": 3, "alpha_pattern": {"layers\\.1\\.q_proj": 5}}`:                                   3 / float64(r),
			`{"lora_alpha": 3, "alpha_pattern": {"q_proj": 7, "layers.0.q_proj": 5}}`:                          7 / float64(r), // the first
			`{"lora_alpha": 3, "init_lora_weights": "gaussian", "use_dora": false, "layer_replication": null}`: 3 / float64(r),
			`{}`: 8 / float64(r), // as in peft
		} {
			got, err := LoRA(checkpoint{"model.layers.0.q_proj.weight": w}, adapter, []byte(config))
			require.NoError(t, err)
			require.Equal(t, 1, got.Changed)
			requireNear(t, updated(x, y, z, out, in, r, scale), got.Tensors["model.layers.0.q_proj.weight"])
		}
	}
}

// TestLoRATransposed has weights stored as [in, out], and an embedding.
func TestLoRATransposed(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	const out, in, r = 1500, 3000, 3
	w, x := random(t, rnd, safetensors.F32, in, out)
	b, y := random(t, rnd, safetensors.F32, out, r)
	a, z := random(t, rnd, safetensors.F32, r, in)
	want := transposed(updated(transposed(x, in, out), y, z, out, in, r, 2), out, in)
	base := checkpoint{"model.layers.0.q_proj.weight": w}
	got, err := LoRA(base, checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}, []byte(`{"lora_alpha": 6, "fan_in_fan_out": true}`))
	require.NoError(t, err)
	requireNear(t, want, got.Tensors["model.layers.0.q_proj.weight"])
	got, err = LoRA(base, checkpoint{module + ".lora_embedding_A": a, module + ".lora_embedding_B": b}, []byte(`{"lora_alpha": 6}`))
	require.NoError(t, err)
	requireNear(t, want, got.Tensors["model.layers.0.q_proj.weight"])
}

// TestLoRARoundsOnce compares a BF16 model with the exact sum, rounded.
func TestLoRARoundsOnce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(11, 12))
	w, x := random(t, rnd, safetensors.BF16, 40, 50)
	b, y := random(t, rnd, safetensors.BF16, 40, 1)
	a, z := random(t, rnd, safetensors.BF16, 1, 50)
	got, err := LoRA(checkpoint{"model.layers.0.q_proj.weight": w}, checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}, []byte(`{"lora_alpha": 1}`))
	require.NoError(t, err)
	requireRounded(t, updated(x, y, z, 40, 50, 1, 1), got.Tensors["model.layers.0.q_proj.weight"])
}

// TestLoRAWholeTensors: a tensor that the adapter holds whole replaces that of the base, in the
// dtype of the base.
func TestLoRAWholeTensors(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	w, _ := random(t, rnd, safetensors.BF16, 4, 5)
	head, x := random(t, rnd, safetensors.F32, 4, 5)
	got, err := LoRA(checkpoint{"head.weight": w, "other": w}, checkpoint{"base_model.model.head.weight": head}, []byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, 1, got.Changed)
	require.Equal(t, safetensors.BF16, got.Tensors["head.weight"].DType())
	requireRounded(t, x, got.Tensors["head.weight"])
	require.Equal(t, w, got.Tensors["other"])

	ids := must(safetensors.NewTensor(safetensors.I64, []int{2}, []int64{1, 2}))
	zeros := must(safetensors.NewTensor(safetensors.I64, []int{2}, []int64{0, 0}))
	got, err = LoRA(checkpoint{"ids": zeros}, checkpoint{"base_model.model.ids": ids}, []byte(`{}`))
	require.NoError(t, err)
	require.Equal(t, ids, got.Tensors["ids"])
}

// TestLoRABiases has the names of peft 0.19 with bias="all", with lora_bias=True, and of a
// module that is saved whole and has an adapter, too.
func TestLoRABiases(t *testing.T) {
	rnd := rand.New(rand.NewPCG(17, 18))
	w, _ := random(t, rnd, safetensors.F32, 4, 5)
	v, x := random(t, rnd, safetensors.F32, 4, 5)
	a, z := random(t, rnd, safetensors.F32, 2, 5)
	b, y := random(t, rnd, safetensors.F32, 4, 2)
	bias, p := random(t, rnd, safetensors.F32, 4)
	ofB, q := random(t, rnd, safetensors.BF16, 4)
	rank0, _ := random(t, rnd, safetensors.F32, 4, 0)
	base := checkpoint{"model.layers.0.q_proj.weight": w, "model.layers.0.q_proj.bias": bias}
	update := checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}
	lora := func(name string, more safetensors.Tensor) checkpoint {
		adapter := maps.Clone(update)
		adapter[module+name] = more
		got, err := LoRA(base, adapter, []byte(`{"lora_alpha": 6}`))
		require.NoError(t, err)
		require.Equal(t, 2, got.Changed)
		return got.Tensors
	}
	require.Equal(t, ofB.Shape(), lora(".base_layer.bias", ofB)["model.layers.0.q_proj.bias"].Shape())
	requireNear(t, q, lora(".base_layer.bias", ofB)["model.layers.0.q_proj.bias"])
	requireNear(t, q, lora(".bias", ofB)["model.layers.0.q_proj.bias"])
	requireNear(t, updated(x, y, z, 4, 5, 2, 3), lora(".base_layer.weight", v)["model.layers.0.q_proj.weight"])
	want := make([]float64, 4)
	for i := range want {
		want[i] = p[i] + 3*q[i]
	}
	requireNear(t, want, lora(".lora_B.bias", ofB)["model.layers.0.q_proj.bias"])

	for _, c := range []struct {
		adapter checkpoint
		want    string
	}{
		{checkpoint{module + ".lora_B.bias": ofB}, `comes without "` + module + `.lora_B.weight"`},
		{checkpoint{module + ".lora_B.bias": ofB, module + ".lora_B.weight": ofB}, "lora_B is BF16 [4], expected a matrix"},
		{checkpoint{module + ".lora_B.bias": ofB, module + ".lora_B.weight": rank0}, "lora_B is F32 [4,0], expected a matrix"},
		{checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b, module + ".lora_B.bias": w}, "their shapes do not fit"},
	} {
		_, err := LoRA(base, c.adapter, []byte(`{}`))
		require.ErrorContains(t, err, c.want)
	}
	base["model.layers.0.q_proj.bias"], _ = safetensors.NewTensor(safetensors.I8, []int{4}, make([]int8, 4))
	_, err := LoRA(base, checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b, module + ".lora_B.bias": ofB}, []byte(`{}`))
	require.ErrorContains(t, err, "the base has I8 [4]")
}

// TestLoRAErrors has an adapter for each thing that is refused, with its error.
func TestLoRAErrors(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	f := func(d safetensors.DType, shape ...int) safetensors.Tensor {
		tensor, _ := random(t, rnd, d, shape...)
		return tensor
	}
	codes := must(safetensors.NewTensor(safetensors.I8, []int{4, 5}, make([]int8, 20)))
	a, b := f(safetensors.F32, 2, 5), f(safetensors.F32, 4, 2)
	for _, c := range []struct {
		w       safetensors.Tensor
		adapter checkpoint
		config  string
		want    string
	}{
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_A.weight": a}, `{}`, `comes without "` + module + `.lora_B.weight"`},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_B.weight": b}, `{}`, `comes without "` + module + `.lora_A.weight"`},
		{f(safetensors.F32, 4, 5), checkpoint{"base_model.model.x.lora_A.weight": a}, `{}`, `the base has no tensor "x.weight"`},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_magnitude_vector": a}, `{}`, `the base has no tensor "model.layers.0.q_proj.lora_magnitude_vector"`},
		{f(safetensors.F32, 5, 4), checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}, `{}`, "their shapes do not fit"},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": f(safetensors.F32, 4, 3)}, `{}`, "their shapes do not fit"},
		{f(safetensors.F32, 4, 5, 1), checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}, `{}`, "expected matrices"},
		{f(safetensors.F32, 4), checkpoint{module + ".lora_A.weight": f(safetensors.F32, 2, 5, 1), module + ".lora_B.weight": b}, `{}`, "expected matrices"},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_A.weight": codes, module + ".lora_B.weight": f(safetensors.F32, 4, 4)}, `{}`, `lora_A.weight" is I8 [4,5], expected floats`},
		{codes, checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}, `{}`, "the base has I8 [4,5]; an adapter is added to F32, F16 and BF16"},
		{f(safetensors.F32, 4, 5), checkpoint{"base_model.model.model.layers.0.q_proj.weight": f(safetensors.F32, 4, 6)}, `{}`, "it is F32 [4,6], that of the base is F32 [4,5]"},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"use_dora": true}`, "use_dora"},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_B.bias": a}, `{"lora_bias": true}`, `the base has no tensor "model.layers.0.q_proj.bias"`},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".base_layer.weight": f(safetensors.F32, 4, 5), module + ".weight": f(safetensors.F32, 4, 5)}, `{}`, `are both for "model.layers.0.q_proj.weight"`},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b, module + ".weight": f(safetensors.F32, 4, 5)}, `{}`, `are both for "model.layers.0.q_proj.weight"`},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"layer_replication": [[0, 4], [2, 5]]}`, "layer_replication is not supported"},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"alora_invocation_tokens": [1, 2]}`, "alora_invocation_tokens is not supported"},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"r": 2, "kasa_config": {"beta": 1}}`, "kasa_config is not supported"}, // of peft 0.21
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"use_qalora": true}`, "use_qalora is not supported"},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"Lora_Alpha": 16}`, "Lora_Alpha is not supported"}, // package json would take it
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}, `{"target_parameters": ["q_proj.weight", "q_proj.other"]}`, `"q_proj.other"; only those named weight`},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"target_parameters": ["q_proj.weight"], "alpha_pattern": {"q_proj.weight": 4}}`, `target_parameters with alpha_pattern`},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}, `{"r": 4}`, `lora_A.weight": its rank is 2, adapter_config.json specifies 4`},
		{f(safetensors.F32, 4, 5), checkpoint{module + ".lora_A.weight": a, module + ".lora_B.weight": b}, `{"r": 2, "rank_pattern": {"v_proj": 8, "q_proj": 3, "q.*": 2}}`, `its rank is 2, adapter_config.json specifies 3`},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"lora_alpha": null}`, "lora_alpha is null"},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"lora_alpha": 0}`, "lora_alpha is 0"},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"alpha_pattern": {"q_proj": 0}}`, `alpha_pattern: "q_proj" is 0`},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"alpha_pattern": {"q_proj": null}}`, `alpha_pattern: "q_proj" is null`},
		{f(safetensors.F32, 4, 5), checkpoint{
			module + ".lora_A.weight": a, module + ".lora_B.weight": b,
			"model.layers.0.q_proj.lora_A.weight": a, "model.layers.0.q_proj.lora_B.weight": b,
		}, `{}`, `are both for "model.layers.0.q_proj.weight"`},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"init_lora_weights": "pissa_niter_16"}`, `init_lora_weights is "pissa_niter_16", which changes the base, too`},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"init_lora_weights": ["x"]}`, "init_lora_weights is "},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"peft_type": "IA3"}`, `peft_type is "IA3"`},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"alpha_pattern": {"(": 1}}`, "alpha_pattern"},
		{f(safetensors.F32, 4, 5), checkpoint{}, `{"alpha_pattern": {` + strings.Repeat(`"a": 1, `, 10_000) + `"a": 1}}`, "more than 10000 patterns"},
		{f(safetensors.F32, 4, 5), checkpoint{}, `[`, "unexpected end"},
	} {
		_, err := LoRA(checkpoint{"model.layers.0.q_proj.weight": c.w}, c.adapter, []byte(c.config))
		require.ErrorContains(t, err, c.want)
	}
}

// TestPatternLimit: an adapter may have as many patterns as the limit, and the first that matches counts.
func TestPatternLimit(t *testing.T) {
	patterns, err := readPatterns([]byte(`{` + strings.Repeat(`"a": 1, `, maxPatterns-1) + `"b": 2}`))
	require.NoError(t, err)
	require.Len(t, patterns, maxPatterns)
	for _, text := range []string{`{"a": 1, "b": "x"}`, `{"a": 1, "b": null}`, `[1]`} {
		_, err := readPatterns([]byte(text))
		require.Error(t, err, text)
	}
	other := 3.0
	for module, want := range map[string]float64{"a": 1, "x.a": 1, "b": 2, "c": 3, "xa": 3, "a.x": 3} {
		require.Equal(t, want, *valueOf(patterns, module, &other), module)
	}
}

// TestLoRARows: a whole tensor may have more or fewer rows than that of the base, and nothing else
// may differ.
func TestLoRARows(t *testing.T) {
	zeros := func(d safetensors.DType, shape ...int) safetensors.Tensor {
		return must(safetensors.NewTensorFunc(d, shape, func([]byte) error { return nil }))
	}
	const name = "embed.weight"
	for _, c := range []struct {
		base, whole safetensors.Tensor
		rows        bool
		want        string
	}{
		{zeros(safetensors.F32, 4, 5), zeros(safetensors.F32, 6, 5), true, ""},
		{zeros(safetensors.BF16, 4, 5), zeros(safetensors.F32, 5, 5), true, ""},
		{zeros(safetensors.F32, 4), zeros(safetensors.F32, 5), true, ""},
		{zeros(safetensors.F32, 4, 5), zeros(safetensors.F32, 4, 5), false, ""},
		{zeros(safetensors.I8, 4, 5), zeros(safetensors.I8, 4, 5), false, ""},
		{zeros(safetensors.F32, 4, 5), zeros(safetensors.F32, 3, 5), true, ""},
		{zeros(safetensors.F32, 4, 5), zeros(safetensors.F32, 0, 5), false, "it is F32 [0,5], that of the base is F32 [4,5]"},
		{zeros(safetensors.F32, 4, 5), zeros(safetensors.F32, 5, 6), false, "it is F32 [5,6]"},
		{zeros(safetensors.F32, 4, 5), zeros(safetensors.F32, 5, 5, 1), false, "it is F32 [5,5,1]"},
		{zeros(safetensors.F32), zeros(safetensors.F32, 5), false, "it is F32 [5]"},
		{zeros(safetensors.I8, 4, 5), zeros(safetensors.F32, 5, 5), false, "it is F32 [5,5]"},
		{zeros(safetensors.F32, 4, 5), zeros(safetensors.I8, 5, 5), false, "it is I8 [5,5]"},
	} {
		got, err := LoRA(checkpoint{name: c.base, "other": c.base}, checkpoint{"base_model.model." + name: c.whole}, []byte(`{}`))
		if c.want != "" {
			require.ErrorContains(t, err, c.want)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, 1, got.Changed)
		require.Equal(t, c.base.DType(), got.Tensors[name].DType())
		require.Equal(t, c.whole.Shape(), got.Tensors[name].Shape())
		require.Equal(t, c.base.String(), got.Tensors["other"].String())
		want := map[string][2]int{}
		if c.rows {
			want[name] = [2]int{c.base.Shape()[0], c.whole.Shape()[0]}
		}
		require.Equal(t, want, got.Rows)
	}
}
