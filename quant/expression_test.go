package quant

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
)

// TestExpression compares with package regexp.
func TestExpression(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", ".", "é", "\n", "[^a]", "[a-c]", "\\d", "\\b", "\\B", "^", "$", "(?m:^)", "(?m:$)", "(?s:.)", "*", "+", "?", "*?", "{2}", "{0,3}", "|", "(", ")", "(?:", ")"}
	some := func(parts []string, n int) string {
		var b strings.Builder
		for range r.IntN(n) {
			b.WriteString(parts[r.IntN(len(parts))])
		}
		return b.String()
	}
	valid, matches := 0, 0
	for range 20_000 {
		text := some(parts, 9)
		e, err := new(config).compile(text, text)
		require.NoError(t, err)
		if e.program == nil {
			continue
		}
		valid++
		slow := regexp.MustCompile("^(?:" + text + ")")
		for range 5 {
			name := some([]string{"a", "b", "A", "1", ".", "é", "\n", "\xff", "\x00"}, 6)
			left := int64(maxSteps)
			ok, err := e.match(name, &left)
			require.NoError(t, err)
			require.Equal(t, slow.MatchString(name), ok, "%q, %q", text, name)
			if ok {
				matches++
			}
		}
	}
	require.Greater(t, valid, 5000)
	require.Greater(t, matches, 5000)
}

// TestSteps counts the steps of matches, and refuses more than there are.
func TestSteps(t *testing.T) {
	const hostile = "re:(.?){200}$"
	c := parsed(t, `{"quantization_config":{"quant_method":"compressed-tensors","config_groups":{"a":{"targets":["`+hostile+`"],"weights":{"num_bits":4}},"b":{"targets":["x"],"weights":{"num_bits":8}}}}}`)
	name := strings.Repeat("a", 400)
	_, err := c.weightsOf(name, "pack-quantized")
	require.EqualError(t, err, "no group of the quantization_config has format pack-quantized and targets it")
	taken := maxSteps - c.steps
	require.Greater(t, taken, int64(200*200), "hundreds of threads, for hundreds of bytes")
	c.steps = taken + taken/2
	_, err = c.weightsOf(name, "pack-quantized")
	require.Error(t, err)
	require.NotErrorIs(t, err, errSteps)
	_, err = c.weightsOf(name, "pack-quantized")
	require.ErrorIs(t, err, errSteps)
	require.Greater(t, c.steps, int64(-2000), "it stops within a name")

	// All matches of a config share the steps.
	tensors := map[string]safetensors.Tensor{}
	for i := range 10 {
		tensors[fmt.Sprint(i, name, ".weight")], err = safetensors.NewTensor(safetensors.F8_E4M3, []int{1, 1}, []byte{0})
		require.NoError(t, err)
	}
	tensors["x.weight"] = tensors["0"+name+".weight"] // one that is quantised
	tensors["x.weight_scale_inv"], err = safetensors.NewTensor(safetensors.F32, []int{1, 1}, []float32{1})
	require.NoError(t, err)
	c = parsed(t, `{"quantization_config":{"quant_method":"fp8","ignored_layers":["`+hostile+`","re:[0-9]a*$"]}}`)
	_, _, err = findModules(tensors, c)
	require.NoError(t, err)
	c.steps = (maxSteps - c.steps) * 9 / 10
	_, _, err = findModules(tensors, c)
	require.ErrorIs(t, err, errSteps)
	require.ErrorContains(t, err, `tensor "9aaa`)
}

// TestStepsOfModels matches the names of a layer of a model with many experts. All its layers
// stay far below the limit.
func TestStepsOfModels(t *testing.T) {
	c := parsed(t, `{"quantization_config":{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{
		"group_0":{"weights":{"num_bits":8},"targets":["re:.*self_attn.(q_a|q_b|kv_a|kv_b|o)_proj.*","re:.*shared_experts.(gate|up|down)_proj$","re:model.layers.[0-2].mlp.*",
			"re:.*layers\\.(3|4|5|58|59|60)\\.mlp.experts.*","re:.*lm_head","re:.*visual.*","re:.*mm_projector.*","re:(model|language_model).*embed.*","re:.*eh_proj","re:.*router$"]},
		"group_1":{"weights":{"num_bits":4},"targets":["re:.*\\.experts\\.[0-9]+\\.(gate|up|down)_proj$","re:.*mlp.(gate|up|down)_proj$"]}}}}`)
	const layers, experts = 61, 384
	for e := range experts {
		_, err := c.weightsOf(fmt.Sprintf("language_model.model.layers.57.mlp.experts.%d.down_proj", e), "pack-quantized")
		require.NoError(t, err)
	}
	require.Less(t, (maxSteps-c.steps)*3*layers, int64(maxSteps/16))
}
