package quant_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// BenchmarkDequantize makes F32 numbers of 16 M elements in memory, one layout after
// another. Plain is the conversion of F8_E4M3 without scales.
func BenchmarkDequantize(b *testing.B) {
	const o, i = 4096, 4096
	m := func() maker { return maker{rand.New(rand.NewPCG(1, 2)), map[string]safetensors.Tensor{}} }
	for _, c := range []struct {
		name, config string
		make         func(m maker)
	}{
		{"Plain", "", func(m maker) { m.random("a.weight", safetensors.F8_E4M3, o, i) }},
		{"PlainF4", "", func(m maker) {
			m.random("a.weight", safetensors.U8, o, i/2)
			m.tensors["a.weight"], _ = m.tensors["a.weight"].Bitcast(safetensors.F4)
		}},
		{"FP8Block", method("fp8", object{"weight_block_size": []int{128, 128}}), func(m maker) {
			m.random("a.weight", safetensors.F8_E4M3, o, i)
			m.floats("a.weight_scale_inv", safetensors.F32, o/128, i/128)
		}},
		{"FP8Channel", method("fp8", object{}), func(m maker) {
			m.random("a.weight", safetensors.F8_E4M3, o, i)
			m.floats("a.weight_scale", safetensors.F32, o, 1)
		}},
		{"NVFP4", "", func(m maker) {
			m.random("a.weight_packed", safetensors.U8, o, i/2)
			m.random("a.weight_scale", safetensors.F8_E4M3, o, i/16)
			m.floats("a.weight_global_scale", safetensors.F32, 1)
		}},
		{"MXFP4", "", func(m maker) {
			m.random("a.weight_packed", safetensors.U8, o, i/2)
			m.random("a.weight_scale", safetensors.U8, o, i/32)
		}},
		{"GPTOSS", method("mxfp4", object{}), func(m maker) {
			m.random("a_blocks", safetensors.U8, 1, o, i/32, 16)
			m.random("a_scales", safetensors.U8, 1, o, i/32)
		}},
		{"Int4", "", func(m maker) {
			m.random("a.weight_packed", safetensors.I32, o, i/8)
			m.floats("a.weight_scale", safetensors.BF16, o, i/128)
			m.dimensions("a.weight_shape", o, i)
		}},
		{"Int4Zero", "", func(m maker) {
			m.random("a.weight_packed", safetensors.I32, o, i/8)
			m.floats("a.weight_scale", safetensors.BF16, o, i/128)
			m.random("a.weight_zero_point", safetensors.I32, o/8, i/128)
			m.dimensions("a.weight_shape", o, i)
		}},
		{"GPTQ", method("gptq", object{"bits": 4, "group_size": 128}), func(m maker) {
			m.random("a.qweight", safetensors.I32, i/8, o)
			m.random("a.qzeros", safetensors.I32, i/128, o/8)
			m.floats("a.scales", safetensors.F16, i/128, o)
		}},
		{"AWQ", method("awq", object{"bits": 4, "group_size": 128}), func(m maker) {
			m.random("a.qweight", safetensors.I32, i, o/8)
			m.random("a.qzeros", safetensors.I32, i/128, o/8)
			m.floats("a.scales", safetensors.F16, i/128, o)
		}},
		{"MLX", text(object{"quantization": object{"bits": 4, "group_size": 64}}), func(m maker) {
			m.random("a.weight", safetensors.U32, o, i/8)
			m.floats("a.scales", safetensors.BF16, o, i/64)
			m.floats("a.biases", safetensors.BF16, o, i/64)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			x := m()
			c.make(x)
			var config []byte
			if c.config != "" {
				config = []byte(c.config)
			}
			plain := x.tensors
			if len(plain) > 1 {
				var err error
				plain, err = quant.Dequantize(x.tensors, config)
				require.NoError(b, err)
			}
			var t safetensors.Tensor
			for _, t = range plain {
			}
			buf := make([]float32, 0, o*i)
			b.SetBytes(4 * o * i)
			for b.Loop() {
				_, err := safetensors.Append(buf, t)
				require.NoError(b, err)
			}
		})
	}
}
