package merge

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/stretchr/testify/require"
)

const experts = "base_model.model.mlp.experts"

// expertsUpdated returns w + scale·B·A of each expert, or its transpose, in float64.
func expertsUpdated(w, b, a []float64, n, out, in, r int, scale float64, turned bool) []float64 {
	sum := append([]float64(nil), w...)
	for e := range n {
		for o := range out {
			for i := range in {
				at := (e*out+o)*in + i
				if turned {
					at = (e*in+i)*out + o
				}
				for k := range r {
					sum[at] += scale * b[o*r*n+k*n+e] * a[(e*r+k)*in+i]
				}
			}
		}
	}
	return sum
}

// TestLoRAOfFusedExperts proves that updates of target_parameters go to the tensors that their shapes
// tell, expert by expert, whether matrices are [out, in] or [in, out].
func TestLoRAOfFusedExperts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	const n, r = 3, 2
	for _, turned := range []bool{false, true} {
		shape := func(out, in int) []int {
			if turned {
				out, in = in, out
			}
			return []int{n, out, in}
		}
		up, x := random(t, rnd, safetensors.F32, shape(10, 6)...)
		down, y := random(t, rnd, safetensors.F32, shape(6, 5)...)
		a1, z1 := random(t, rnd, safetensors.F32, n*r, 6)
		b1, v1 := random(t, rnd, safetensors.F32, 10, n*r)
		a2, z2 := random(t, rnd, safetensors.F32, n*r, 5)
		b2, v2 := random(t, rnd, safetensors.F32, 6, n*r)
		got, err := LoRA(checkpoint{"mlp.experts.gate_up_proj": up, "mlp.experts.down_proj": down}, checkpoint{
			experts + ".base_layer.lora_A.weight": a1, experts + ".base_layer.lora_B.weight": b1,
			experts + ".lora_A.weight": a2, experts + ".lora_B.weight": b2,
		}, []byte(`{"r": 2, "lora_alpha": 6, "target_parameters": ["mlp.experts.down_proj", "mlp.experts.gate_up_proj"]}`))
		require.NoError(t, err)
		require.Equal(t, 2, got.Changed)
		requireNear(t, expertsUpdated(x, v1, z1, n, 10, 6, r, 3, turned), got.Tensors["mlp.experts.gate_up_proj"])
		requireNear(t, expertsUpdated(y, v2, z2, n, 6, 5, r, 3, turned), got.Tensors["mlp.experts.down_proj"])
	}
}

// TestLoRAOfExpertsErrors refuses updates whose place is not known.
func TestLoRAOfExpertsErrors(t *testing.T) {
	f := func(shape ...int) safetensors.Tensor {
		x, _ := random(t, rand.New(rand.NewPCG(3, 4)), safetensors.F32, shape...)
		return x
	}
	update := checkpoint{experts + ".lora_A.weight": f(6, 4), experts + ".lora_B.weight": f(4, 6)}
	for _, c := range []struct {
		base   checkpoint
		config string
		want   string
	}{
		{checkpoint{"mlp.experts.up": f(3, 4, 4)}, `["mlp.experts.up"]`, "in several ways"},
		{checkpoint{"mlp.experts.up": f(3, 4, 5)}, `["mlp.experts.up"]`, "their shapes do not fit"},
		{checkpoint{"mlp.experts.0.up.weight": f(4, 4)}, `["mlp.experts.up"]`, `the base has no tensor "mlp.experts.up": its experts may be tensors of their own`},
		{checkpoint{"mlp.experts.up": f(3, 4, 5)}, `["mlp.experts.up", ".down"]`, `target_parameters has ".down"`},
		{checkpoint{"mlp.experts.up": f(4, 4)}, `["mlp.experts.up"]`, "only those named weight and fused experts are supported"},
		{checkpoint{"mlp.experts.up": f(3, 4, 4), "mlp.experts.down": f(3, 4, 4)}, `["experts.up", "experts.down"]`, "there are 1 updates of 2 tensors"},
	} {
		_, err := LoRA(c.base, update, []byte(`{"target_parameters": `+c.config+`}`))
		require.ErrorContains(t, err, c.want)
	}
	_, err := LoRA(checkpoint{"mlp.experts.up": f(3, 4, 5)}, checkpoint{experts + ".lora_A.weight": f(6, 5)}, []byte(`{"target_parameters": ["mlp.experts.up"]}`))
	require.ErrorContains(t, err, "comes without")

	codes := func(shape ...int) safetensors.Tensor {
		return must(safetensors.NewTensorFunc(safetensors.I8, shape, func([]byte) error { return nil }))
	}
	for _, factors := range []checkpoint{
		{experts + ".lora_A.weight": codes(6, 4), experts + ".lora_B.weight": f(5, 6)},
		{experts + ".lora_A.weight": f(6, 4), experts + ".lora_B.weight": codes(5, 6)},
	} {
		_, err := LoRA(checkpoint{"mlp.experts.up": f(3, 5, 4)}, factors, []byte(`{"target_parameters": ["mlp.experts.up"], "r": 2}`))
		require.ErrorContains(t, err, "expected floats")
	}

	for _, d := range []safetensors.DType{safetensors.F64, safetensors.I8} {
		base := must(safetensors.NewTensorFunc(d, []int{3, 5, 4}, func([]byte) error { return nil }))
		factors := checkpoint{experts + ".lora_A.weight": f(6, 4), experts + ".lora_B.weight": f(5, 6)}
		_, err := LoRA(checkpoint{"mlp.experts.up": base}, factors, []byte(`{"target_parameters": ["mlp.experts.up"], "r": 2}`))
		require.ErrorContains(t, err, "an adapter is added to F32, F16 and BF16")
	}

	// A fifth tensor of the same module would make too many orders.
	base, more, at := checkpoint{}, checkpoint{}, experts
	var names []string
	for i := range 5 {
		name := fmt.Sprintf("mlp.experts.w%d", i)
		base[name], names = f(3, 10+i, 4), append(names, strconv.Quote(name))
		more[at+".lora_A.weight"], more[at+".lora_B.weight"] = f(6, 4), f(10+i, 6)
		_, err := LoRA(base, more, []byte(`{"target_parameters": [`+strings.Join(names, ",")+`]}`))
		if i < 4 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "their shapes do not fit")
		}
		at += ".base_layer"
	}
}

// TestLoRANear names the tensor of a base whose names have another prefix, and the --rename that
// makes an adapter for it.
func TestLoRANear(t *testing.T) {
	w, _ := random(t, rand.New(rand.NewPCG(5, 6)), safetensors.F32, 4, 4)
	adapter := checkpoint{module + ".lora_A.weight": w, module + ".lora_B.weight": w}
	for base, rename := range map[string]string{
		"language_model.model.layers.0.q_proj.weight": `s/^base_model\.model\./base_model.model.language_model./`,
		"model.language_model.layers.0.q_proj.weight": `s/^base_model\.model\.model\./base_model.model.model.language_model./`,
	} {
		_, err := LoRA(checkpoint{base: w, "lm_head.weight": w}, adapter, []byte(`{}`))
		require.ErrorContains(t, err, base)
		require.ErrorContains(t, err, "--rename "+term.Word(rename))
	}
	_, err := LoRA(checkpoint{"visual.blocks.0.weight": w}, adapter, []byte(`{}`))
	require.ErrorContains(t, err, "the base has no tensor")
	require.NotContains(t, err.Error(), "--rename")

	// A rename must not move an update to another layer.
	more := strings.Replace(module, ".0.", ".10.", 1)
	adapter = checkpoint{more + ".lora_A.weight": w, more + ".lora_B.weight": w}
	for base, want := range map[string]string{
		"model.layers.1.q_proj.weight":                 `no tensor "model.layers.10.q_proj.weight": its last layer is 1, and the adapter is for a model with more layers`,
		"model.layers.11.q_proj.weight":                `no tensor "model.layers.10.q_proj.weight"`,
		"model.language_model.layers.1.q_proj.weight":  `no tensor "model.layers.10.q_proj.weight"`,
		"model.language_model.layers.10.q_proj.weight": "--rename",
	} {
		_, err := LoRA(checkpoint{base: w, "lm_head.weight": w}, adapter, []byte(`{}`))
		require.ErrorContains(t, err, want)
		require.Equal(t, want == "--rename", strings.Contains(err.Error(), "--rename"), base)
	}

	// transformers stores the router of Mixtral under a name that its module had before.
	adapter = checkpoint{"base_model.model.model.layers.0.mlp.gate.lora_A.weight": w, "base_model.model.model.layers.0.mlp.gate.lora_B.weight": w}
	_, err = LoRA(checkpoint{"model.layers.0.block_sparse_moe.gate.weight": w}, adapter, []byte(`{}`))
	require.ErrorContains(t, err, "--rename "+term.Word(`s/\.mlp\.gate\./.block_sparse_moe.gate./`))
}

// TestDialects tells adapters of others from those of peft by the names of tensors.
func TestDialects(t *testing.T) {
	for name, want := range map[string]string{
		"lora_unet_down_to_q.lora_down.weight":                 "kohya",
		"lora_te1_text_model_encoder.alpha":                    "kohya",
		"unet.down_blocks.0.attn.to_q.lora_A.weight":           "diffusers",
		"transformer.blocks.0.attn.to_q.lora_B.weight":         "diffusers",
		"unet.mid.attn.processor.to_q_lora.down.weight":        "diffusers",
		"text_encoder.layers.0.q.lora_linear_layer.up.weight":  "diffusers",
		"lora_unet_down_to_q.hada_w1_a":                        "kohya",
		"base_model.model.model.layers.0.q_proj.lora_A.weight": "",
		"model.layers.0.q_proj.weight":                         "",
		"transformer.h.0.attn.c_attn.weight":                   "",
	} {
		got := Dialect([]string{name})
		require.Equal(t, want == "", got == "", name)
		require.Contains(t, got, want, name)
	}
	require.True(t, IsAdapter([]string{module + ".lora_A.weight"}))
	require.False(t, IsAdapter([]string{"model.layers.0.q_proj.weight"}))
}
