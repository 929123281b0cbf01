package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/gosafetensors/safetensors"
)

// decoder returns the tensors of a made-up decoder: the norms of a layer have grown away from 1,
// deep layers have larger weights than those at the start, and the matrices in front of a residual
// connection have smaller ones. In a narrow one, norms are more than the thousandth of the values that the histogram
// leaves out at each end. If experts is not 0, it replaces the MLP of each layer.
func decoder(layers, experts, width int) map[string]safetensors.Tensor {
	rng := rand.New(rand.NewPCG(uint64(layers), uint64(experts)))
	tensors := make(map[string]safetensors.Tensor)
	add := func(name string, d safetensors.DType, mean, std float64, shape ...int) {
		n := 1
		for _, dim := range shape {
			n *= dim
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(mean + std*rng.NormFloat64())
		}
		x := must(safetensors.NewTensor(safetensors.F32, shape, values))
		if d != safetensors.F32 {
			x = must(x.Convert(d))
		}
		tensors[name] = x
	}
	add("model.embed_tokens.weight", safetensors.BF16, 0, 0.02, 8*width, width)
	for i := range layers {
		name := func(module string) string { return fmt.Sprintf("model.layers.%d.%s.weight", i, module) }
		depth := 0.02 * (0.6 + 1.4*float64(i)/float64(layers))
		residual := depth / math.Sqrt(float64(layers))
		add(name("input_layernorm"), safetensors.F32, 0.4+0.05*float64(i), 0.05, width)
		add(name("post_attention_layernorm"), safetensors.F32, 0.6+0.04*float64(i), 0.03, width)
		add(name("self_attn.q_proj"), safetensors.BF16, 0, 1.6*depth, width, width)
		add(name("self_attn.k_proj"), safetensors.BF16, 0, 1.3*depth, width/4, width)
		add(name("self_attn.v_proj"), safetensors.BF16, 0, 0.8*depth, width/4, width)
		add(name("self_attn.o_proj"), safetensors.BF16, 0, residual, width, width)
		for e := range max(experts, 1) {
			mlp := "mlp."
			if experts > 0 {
				mlp = fmt.Sprintf("mlp.experts.%d.", e)
			}
			add(name(mlp+"gate_proj"), safetensors.BF16, 0, depth, 3*width, width)
			add(name(mlp+"up_proj"), safetensors.BF16, 0, 0.9*depth, 3*width, width)
			add(name(mlp+"down_proj"), safetensors.BF16, 0, residual, width, 3*width)
		}
	}
	add("model.norm.weight", safetensors.F32, 2, 0.2, width)
	add("lm_head.weight", safetensors.F16, 0, 0.02, 8*width, width)
	return tensors
}
