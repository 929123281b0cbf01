package main

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// TestErrors checks that nothing is written if the adapter does not fit.
func TestErrors(t *testing.T) {
	require.ErrorContains(t, run(nil, io.Discard), "usage")
	base, dir := t.TempDir(), t.TempDir()
	fails := func(want, config string, change func(tensors map[string]safetensors.Tensor)) {
		tensors, adapter := randomModel(t)
		require.NoError(t, safetensors.WriteShards(base, tensors, nil, 1<<20))
		change(adapter)
		writeAdapter(t, dir, adapter, config)
		out := filepath.Join(t.TempDir(), "out")
		require.ErrorContains(t, run([]string{base, dir, out}, io.Discard), want)
		require.NoDirExists(t, out)
	}
	const config, a, b = `{"r":3,"lora_alpha":6}`, "base_model.model.h.0.q.lora_A.weight", "base_model.model.h.0.q.lora_B.weight"
	same := func(map[string]safetensors.Tensor) {}
	fails("fan_in_fan_out is set", `{"r":3,"lora_alpha":6,"fan_in_fan_out":true}`, same)
	fails("rank_pattern", `{"r":3,"lora_alpha":6,"rank_pattern":{"q":8}}`, same)
	fails("r must be positive", `{"lora_alpha":6}`, same)
	fails("adapter_config.json: ", `{`, same)
	fails(`"base_model.model.h.9.q.lora_A.weight": the base model has no tensor "h.9.q.weight"`, config, func(m map[string]safetensors.Tensor) {
		m["base_model.model.h.9.q.lora_A.weight"], m["base_model.model.h.9.q.lora_B.weight"] = m[a], m[b]
	})
	fails(`"`+a+`" is not one of a pair`, config, func(m map[string]safetensors.Tensor) { delete(m, b) })
	fails(`"`+b+`" is not one of a pair`, config, func(m map[string]safetensors.Tensor) { delete(m, a) })
	fails(`"h.0.q.lora_magnitude_vector" is not one of a pair`, config, func(m map[string]safetensors.Tensor) { m["h.0.q.lora_magnitude_vector"] = m[a] })
	fails(`tensor "h.0.q.weight": the shapes do not match: base BF16 [6,5], lora_B F32 [3,5], lora_A F32 [3,5]`, config, func(m map[string]safetensors.Tensor) { m[b] = m[a] })
}
