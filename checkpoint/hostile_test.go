package checkpoint_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/gosafetensors/safetensors/checkpoint"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/stretchr/testify/require"
)

// named returns a safetensors file of n tensors without elements.
func named(n int, name func(i int) string) string {
	var header strings.Builder
	for i := range n {
		header.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(&header, `%q:{"dtype":"F32","shape":[0],"data_offsets":[0,0]}`, name(i))
	}
	header.WriteByte('}')
	return string(binary.LittleEndian.AppendUint64(nil, uint64(header.Len()))) + header.String()
}

// TestHostileNames judges directories of some megabytes whose names, configs or copies make every
// comparison with every other one take minutes to hours.
func TestHostileNames(t *testing.T) {
	n := 50_000
	switch {
	case testing.Short() || testplatform.RaceEnabled:
		n = 5000
	case testplatform.Long():
		n = 200_000
	}
	llama := `{"model_type":"llama","architectures":["LlamaForCausalLM"],"num_hidden_layers":1000000000}`
	list := func(n int, item func(i int) string) []string {
		items := make([]string, n)
		for i := range items {
			items[i] = item(i)
		}
		return items
	}
	text := func(v any) string {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		return string(b)
	}
	lora := func(i int) string { return fmt.Sprintf("base_model.model.m%d.q.lora_%c.weight", i/2, 'A'+i%2) }
	one := weights(t, map[string]float32{"a": 1})
	folded := map[string]string{}
	for i := range 2000 {
		name := []byte("diffusion_pytorch_model")
		for bit := range 11 {
			name[bit%9+12*(bit/9)] &^= byte(i>>bit&1) << 5
		}
		folded[string(name)+".safetensors"] = one
	}
	folded["diffusion_pytorch_model.safetensors"] = named(n, func(i int) string { return fmt.Sprint("t", i) })
	parts := make(map[string]any)
	for i := range min(n, 50_000) { // a config has at most 4 MiB
		parts[fmt.Sprint(i)] = map[string]any{"model_type": "y", "depth": i + 100}
	}
	for title, files := range map[string]map[string]string{
		"a deep name":       {"model.safetensors": named(3, func(i int) string { return strings.Repeat("1.", 1_000_000+i) + "weight" }), "config.json": `{"model_type":"unknown"}`},
		"many deep names":   {"model.safetensors": named(20_000, func(i int) string { return strings.Repeat("1.", 30) + fmt.Sprint(i, ".weight") }), "config.json": `{"model_type":"unknown"}`},
		"biases alone":      {"model.safetensors": named(n, func(i int) string { return fmt.Sprint("l.", i, ".bias") }), "config.json": `{"model_type":"unknown"}`},
		"three large alike": {"model.safetensors": named(3*n-1, func(i int) string { return fmt.Sprintf("l.%d.m.w%d", i%3, i/3) }), "config.json": `{"model_type":"unknown"}`},
		"many stacks": {"model.safetensors": named(n, func(i int) string {
			return fmt.Sprintf("p%d.layers.0.%s.weight", i/9, []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "input_layernorm", "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}[i%9])
		}), "config.json": llama},
		"a layer of a billion": {"model.safetensors": named(n, func(i int) string {
			return fmt.Sprintf("model.layers.%d.%s.weight", i/4, []string{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"}[i%4])
		}), "config.json": llama},
		"many counts": {"model.safetensors": named(n, func(i int) string { return fmt.Sprintf("s%d.%d.w.weight", i/4, i%4) }),
			"config.json": text(map[string]any{"model_type": "unknown", "parts": parts})},
		"many targets": {"adapter_model.safetensors": named(n, lora), "adapter_config.json": text(map[string]any{
			"peft_type": "LORA", "target_modules": append(list(300_000, func(i int) string { return fmt.Sprint(i) }), "q")})},
		"folded names": folded,
	} {
		t.Run(title, func(t *testing.T) {
			fsys := make(fstest.MapFS)
			for name, text := range files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			found, err := checkpoint.Check(fsys, ".")
			require.NoError(t, err)
			require.LessOrEqual(t, len(found), 200)
		})
	}
}

// TestManyCopies: two shards whose tensors all have the same names and other numbers are opened a few times,
// not once for each tensor.
func TestManyCopies(t *testing.T) {
	const n = 2000
	values, others, shards := make(map[string]float32), make(map[string]float32), make(map[string]string)
	for i := range n {
		name := fmt.Sprint("t", i)
		values[name], others[name], shards[name] = 1, 2, "model-00001-of-00002.safetensors"
	}
	others["last"], shards["last"] = 3, "model-00002-of-00002.safetensors"
	fsys := &countingFS{FS: files(map[string]string{
		"model-00001-of-00002.safetensors": weights(t, values), "model-00002-of-00002.safetensors": weights(t, others),
		"model.safetensors.index.json": index(t, shards),
	}), opens: make(map[string]int)}
	found, err := checkpoint.Check(fsys, ".")
	require.NoError(t, err)
	require.Equal(t, checkpoint.Copies, found[0].Rule)
	require.Contains(t, found[0].Text, fmt.Sprintf("the tensor \"t0\" and %d more", n-1))
	for name, opens := range fsys.opens {
		require.LessOrEqual(t, opens, 3, name)
	}
}
