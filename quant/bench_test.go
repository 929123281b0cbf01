package quant_test

import (
	"testing"

	"github.com/gosafetensors/safetensors"
)

// BenchmarkDequantize makes F32 numbers of 16 M elements in memory, one layout after
// another. Plain is the conversion of F8_E4M3 without scales.
func BenchmarkDequantize(b *testing.B) {
	const o, i = 4096, 4096
	type part struct {
		name  string
		dtype safetensors.DType
		shape []int
	}
	numbers := func(name string, d safetensors.DType, shape ...int) part { return part{name, d, shape} }
	for _, c := range []struct {
		name, config string
		parts        []part
	}{
		{"Plain", "{}", []part{numbers("a.weight", safetensors.F8_E4M3, o, i)}},
		{"PlainF4", "{}", []part{numbers("a.weight", safetensors.F4, o, i)}},
		{"FP8Block", method("fp8", object{"weight_block_size": []int{128, 128}}), []part{
			numbers("a.weight", safetensors.F8_E4M3, o, i), numbers("a.weight_scale_inv", safetensors.F32, o/128, i/128)}},
		{"FP8Channel", method("fp8", object{}), []part{numbers("a.weight", safetensors.F8_E4M3, o, i), numbers("a.weight_scale", safetensors.F32, o, 1)}},
		{"NVFP4", "{}", []part{
			numbers("a.weight_packed", safetensors.U8, o, i/2), numbers("a.weight_scale", safetensors.F8_E4M3, o, i/16), numbers("a.weight_global_scale", safetensors.F32, 1)}},
		{"MXFP4", "{}", []part{numbers("a.weight_packed", safetensors.U8, o, i/2), numbers("a.weight_scale", safetensors.U8, o, i/32)}},
		{"GPTOSS", method("mxfp4", object{}), []part{numbers("a_blocks", safetensors.U8, 1, o, i/32, 16), numbers("a_scales", safetensors.U8, 1, o, i/32)}},
		{"Int4", "{}", []part{
			numbers("a.weight_packed", safetensors.I32, o, i/8), numbers("a.weight_scale", safetensors.BF16, o, i/128), numbers("a.weight_shape", safetensors.I64, 2)}},
		{"Int4Zero", "{}", []part{
			numbers("a.weight_packed", safetensors.I32, o, i/8), numbers("a.weight_scale", safetensors.BF16, o, i/128),
			numbers("a.weight_zero_point", safetensors.I32, o/8, i/128), numbers("a.weight_shape", safetensors.I64, 2)}},
		{"GPTQ", method("gptq", object{"bits": 4, "group_size": 128}), []part{
			numbers("a.qweight", safetensors.I32, i/8, o), numbers("a.qzeros", safetensors.I32, i/128, o/8), numbers("a.scales", safetensors.F16, i/128, o)}},
		{"AWQ", method("awq", object{"bits": 4, "group_size": 128}), []part{
			numbers("a.qweight", safetensors.I32, i, o/8), numbers("a.qzeros", safetensors.I32, i/128, o/8), numbers("a.scales", safetensors.F16, i/128, o)}},
		{"MLX", text(object{"quantization": object{"bits": 4, "group_size": 64}}), []part{
			numbers("a.weight", safetensors.U32, o, i/8), numbers("a.scales", safetensors.BF16, o, i/64), numbers("a.biases", safetensors.BF16, o, i/64)}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := newMaker()
			for _, p := range c.parts {
				switch p.dtype {
				case safetensors.I64:
					m.dimensions(p.name, o, i)
				case safetensors.F32, safetensors.BF16, safetensors.F16:
					m.floats(p.name, p.dtype, p.shape...)
				default:
					m.random(p.name, p.dtype, p.shape...)
				}
			}
			plain := m.tensors
			if len(plain) > 1 {
				plain = dequantized(b, plain, c.config)
			}
			var t safetensors.Tensor
			for _, t = range plain {
			}
			buf := make([]float32, 0, o*i)
			b.SetBytes(4 * o * i)
			for b.Loop() {
				must(safetensors.Append(buf, t))
			}
		})
	}
}
