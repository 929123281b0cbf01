package quant_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// TestAccepted: what is just within a rule.
func TestAccepted(t *testing.T) {
	for _, c := range []struct {
		title, config string
		changes       []change
		shape         []int // of the result
	}{
		{"INT8 without an order", method("bitsandbytes", object{}), []change{zeroed("a.weight", safetensors.I8, 2, 32), zeroed("a.SCB", safetensors.F32, 2)}, []int{2, 32}},
		{"a single scale, whatever the blocks", method("fp8", object{"weight_block_size": []int{1, 1}}), []change{zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32)}, []int{2, 2}},
		{"an odd number of words", method("gptq", object{"bits": 2, "group_size": 48}),
			[]change{zeroed("a.qweight", safetensors.I32, 3, 32), zeroed("a.qzeros", safetensors.I32, 1, 2), zeroed("a.scales", safetensors.F16, 1, 32)}, []int{32, 48}},
		{"groups that only the scales tell", compressedConfig("pack-quantized", object{"num_bits": 4}),
			[]change{zeroed("a.weight_packed", safetensors.I32, 2, 2), zeroed("a.weight_scale", safetensors.F32, 2, 2), numbers("a.weight_shape", 2, 16)}, []int{2, 16}},
		{"integers without columns", compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "channel"}),
			[]change{zeroed("a.weight_packed", safetensors.I32, 2, 0), zeroed("a.weight_scale", safetensors.F32, 2, 0), numbers("a.weight_shape", 2, 0)}, []int{2, 0}},
		{"a single group has its order", compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8, "actorder": "group"}),
			[]change{zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 8)}, []int{2, 8}},
		{"the largest blocks", method("bitsandbytes", object{}), []change{
			zeroed("a.weight", safetensors.U8, 8, 1), zeroed("a.weight.absmax", safetensors.U8, 1), zeroed("a.weight.quant_map", safetensors.F32, 16),
			zeroed("a.weight.nested_absmax", safetensors.F32, 1), zeroed("a.weight.nested_quant_map", safetensors.F32, 256),
			bytesOf("a.weight.quant_state.bitsandbytes__nf4", `{"blocksize":2147483647,"nested_blocksize":2147483647,"shape":[4,4]}`),
		}, []int{4, 4}},
		{"blocks of 128×128 without a config", "{}", []change{zeroed("a.weight", safetensors.F8_E4M3, 129, 130), zeroed("a.weight_scale", safetensors.F32, 2, 2)}, []int{129, 130}},
		{"the longest lines, of which there are none", method("fp8", object{}), []change{zeroed("a.weight", safetensors.F8_E4M3, 0, math.MaxInt/8), zeroed("a.weight_scale", safetensors.F32, 0, 1)}, []int{0, math.MaxInt / 8}},
	} {
		m := checkpoint(c.changes...)
		plain := dequantized(t, m, c.config)
		x := plain["a.weight"]
		require.Equal(t, c.shape, x.Shape(), c.title)
		if x.Len() == 0 {
			continue
		}
		require.Equal(t, []float32{0}, elements[float32](t, x, safetensors.Span(0, 1), safetensors.Span(0, 1)), c.title)
	}
}
