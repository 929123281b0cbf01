package quant_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// TestLayouts: the names of parts and of results have a layout, those that no result needs
// have one without bits, and plain tensors have none.
func TestLayouts(t *testing.T) {
	m := checkpoint(zeroed("norm.weight", safetensors.BF16, 2),
		zeroed("a.qweight", safetensors.I32, 4, 32), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32), zeroed("a.g_idx", safetensors.I32, 32))
	layouts, err := quant.Layouts(m, []byte(method("gptq", object{"bits": 4, "group_size": 32})))
	require.NoError(t, err)
	four := quant.Layout{Method: "gptq", Bits: 4}
	require.Equal(t, map[string]quant.Layout{"a.qweight": four, "a.qzeros": four, "a.scales": four, "a.g_idx": four, "a.weight": four}, layouts)
	require.Equal(t, "gptq, 4 bits", four.String())

	m = checkpoint(
		zeroed("a.weight", safetensors.F8_E4M3, 2, 2), zeroed("a.weight_scale", safetensors.F32), zeroed("a.input_scale", safetensors.F32),
		zeroed("a.bias", safetensors.F32, 2),
	)
	config := []byte(method("fp8", object{"activation_scheme": "static"}))
	layouts = must(quant.Layouts(m, config))(t)
	eight, none := quant.Layout{Method: "fp8", Bits: 8}, quant.Layout{Method: "fp8"}
	require.Equal(t, map[string]quant.Layout{"a.weight": eight, "a.weight_scale": eight, "a.input_scale": none}, layouts)
	require.Equal(t, "fp8", none.String())
	plain := dequantized(t, m, config)
	require.ElementsMatch(t, []string{"a.weight", "a.bias"}, slices.Collect(maps.Keys(plain)))
}

// TestLayoutsRefuse: bits that nothing tells are an error, as of Dequantize.
func TestLayoutsRefuse(t *testing.T) {
	m := checkpoint(zeroed("a.weight_packed", safetensors.I32, 2, 1), zeroed("a.weight_scale", safetensors.F32, 2, 1), numbers("a.weight_shape", 2, 4))
	_, err := quant.Layouts(m, nil)
	require.ErrorContains(t, err, "safetensors: tensor \"a.weight_packed\": packed integers: codes of 1 bits or of 2; only a config tells")
	_, err = quant.Layouts(m, []byte("{"))
	require.EqualError(t, err, "safetensors: the config: unexpected end of JSON input")
	numbers("a.weight_shape", 2, 32)(m)
	layouts := must(quant.Layouts(m, nil))(t)
	require.Equal(t, quant.Layout{Method: "compressed-tensors", Bits: 1}, layouts["a.weight"])
}
