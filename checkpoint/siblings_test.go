package checkpoint_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/stretchr/testify/require"
)

// layersOf returns tensors of some layers: names has those of layer n.
func layersOf(t *testing.T, layers int, names func(n int) string) map[string]safetensors.Tensor {
	t.Helper()
	tensors := make(map[string]safetensors.Tensor)
	add := func(name string) {
		shape := []int{2, 2}
		if strings.Contains(name, "norm") || strings.HasSuffix(name, "bias") {
			shape = []int{2}
		}
		x, err := safetensors.NewTensor(safetensors.F32, shape, make([]float32, 4)[:2*len(shape)])
		require.NoError(t, err)
		tensors[name] = x
	}
	add("model.embed_tokens.weight")
	add("model.norm.weight")
	for n := range layers {
		for rest := range strings.FieldsSeq(names(n)) {
			add(fmt.Sprintf("model.layers.%d.%s", n, rest))
		}
	}
	return tensors
}

// hybrids are models of architectures that Check does not know, and whose layers differ from each other.
var hybrids = map[string]func(n int) string{
	"alike":         func(int) string { return "a.q.weight a.k.weight a.o.weight a.o.bias norm.weight" },
	"first without": func(n int) string { return []string{"", "attn_norm.weight "}[min(n, 1)] + "a.q.weight mlp.weight" },
	"last without":  func(n int) string { return []string{"skip.weight ", ""}[n/5] + "a.q.weight mlp.weight" },
	"first dense": func(n int) string {
		return []string{"mlp.up.weight mlp.down.weight", "mlp.experts.0.up.weight mlp.experts.1.up.weight mlp.gate.weight"}[min(n, 1)]
	},
	"alternate": func(n int) string {
		return []string{"mixer.in.weight mixer.out.weight", "a.q.weight a.k.weight"}[n%2] + " norm.weight"
	},
	"one of attention": func(n int) string {
		return []string{"m.in.weight m.conv.weight m.out.weight", "m.q.weight m.k.weight"}[n/3%2*n%3%2] + " norm.weight"
	},
	"shared keys": func(n int) string { return []string{"a.q.weight a.k.weight a.v.weight", "a.q.weight"}[n/4] },
	"values are keys": func(n int) string {
		return []string{"a.q_proj.weight a.k_proj.weight a.v_proj.weight", "a.q_proj.weight a.k_proj.weight"}[n%5/4]
	},
	"shortcuts": func(n int) string { return []string{"c.weight c.bias s.weight s.bias", "c.weight c.bias"}[n%5/4] },
	"first has more": func(n int) string {
		return []string{"a.q.weight relative_attention_bias.weight", "a.q.weight"}[min(n, 1)]
	},
	"buffers":     func(n int) string { return []string{"a.q.weight rotary_emb.inv_freq", "a.q.weight"}[n%3%2] },
	"activations": func(n int) string { return []string{"up.weight", ""}[n%2] },
	"experts": func(int) string {
		return "mlp.experts.0.up.weight mlp.experts.1.up.weight mlp.experts.2.up.weight mlp.gate.weight"
	},
	"wide experts": func(int) string {
		return "mlp.experts.0.up.weight mlp.experts.0.down.weight mlp.experts.1.up.weight mlp.experts.1.down.weight mlp.experts.2.up.weight mlp.experts.2.down.weight"
	},
	"biases": func(int) string {
		return "mlp.up_proj.weight mlp.up_proj.bias mlp.down_proj.weight mlp.down_proj.bias"
	},
	"one without keys": func(n int) string {
		return []string{"a.k_proj.weight a.k_proj.bias a.q_proj.weight a.q_proj.bias", "a.q_proj.weight a.q_proj.bias"}[n%5/4]
	},
	"last without a part": func(n int) string {
		return []string{"a.q.weight x.fc1.weight x.fc1.bias x.fc2.weight", "a.q.weight x.fc2.weight"}[n/5]
	},
	"without two": func(n int) string {
		return []string{"mlp.fc1.weight mlp.fc2.weight mlp.fc3.weight", "mlp.fc3.weight"}[n%5/4]
	},
	"no next to last": func(n int) string { return []string{"a.q.weight a.k.weight mlp.up.weight", "mlp.up.weight"}[n%5/4] },
}

// TestHybrids: layers that differ are no finding, and neither is a layer for predicting further tokens.
func TestHybrids(t *testing.T) {
	config := `{"model_type":"new","architectures":["New"],"num_hidden_layers":6}`
	for name, names := range hybrids {
		model := layersOf(t, 6, names)
		require.Empty(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), name)
	}
	next := layersOf(t, 5, func(n int) string {
		return []string{"a.q.weight norm.weight", "a.q.weight norm.weight eh_proj.weight"}[n/4]
	})
	require.Empty(t, check(t, files(map[string]string{"config.json": `{"model_type":"new","num_hidden_layers":4,"num_nextn_predict_layers":1}`, "model.safetensors": written(t, next)})))
}

// TestLostSiblings: of an architecture that Check does not know, a tensor is missing that all modules of the same
// name have.
func TestLostSiblings(t *testing.T) {
	config := `{"model_type":"new","architectures":["New"],"num_hidden_layers":6}`
	for _, c := range []struct{ model, lost string }{
		{"alike", "model.layers.2.a.q.weight"},
		{"alike", "model.layers.3.norm.weight"},
		{"alike", "model.layers.0.a.o.bias"},
		{"alike", "model.layers.5.a.o.weight"},
		{"experts", "model.layers.2.mlp.experts.1.up.weight"},
		{"experts", "model.layers.3.mlp.gate.weight"},
		{"wide experts", "model.layers.0.mlp.experts.1.down.weight"},
		{"first dense", "model.layers.2.mlp.experts.0.up.weight"},
		{"shortcuts", "model.layers.2.c.bias"},
		{"biases", "model.layers.2.mlp.up_proj.weight model.layers.2.mlp.up_proj.bias"},
	} {
		model := layersOf(t, 6, hybrids[c.model])
		for tensor := range strings.FieldsSeq(c.lost) {
			require.Contains(t, model, tensor)
			delete(model, tensor)
		}
		found := check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)}))
		require.Len(t, found, 1, "%s without %s", c.model, c.lost)
		require.Contains(t, found[0], strings.TrimSuffix(strings.Fields(c.lost)[len(strings.Fields(c.lost))-1], ".up.weight"))
		require.Equal(t, strings.HasSuffix(c.lost, ".a.o.weight"), strings.Contains(found[0], "its bias is there"), found[0])
	}
	whole := layersOf(t, 6, hybrids["alike"])
	for _, name := range []string{"first.0.x.weight", "first.1.x.weight"} { // a stack that is too small to be judged
		whole[name] = zeros(t, 2, 2)
	}
	for _, hole := range []string{"model.layers.2."} {
		maps.DeleteFunc(whole, func(name string, _ safetensors.Tensor) bool { return strings.HasPrefix(name, hole) })
		found := check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, whole)}))
		require.Len(t, found, 1)
		require.Contains(t, found[0], `"model.layers.2"`)
	}
}

// TestLostModules: one of several layers lacks a block, or the keys and values of its attention, and has otherwise what the
// other layers have. This is no finding if the config lets layers share keys, or has layers of different kinds.
func TestLostModules(t *testing.T) {
	const attention, mlp = "n.weight self_attn.q.weight self_attn.k_proj.weight self_attn.v_proj.weight ", "m.weight mlp.a.weight mlp.b.weight mlp.c.weight mlp.d.weight "
	experts := func(int) string {
		return "n.weight mlp.experts.0.a.weight mlp.experts.0.b.weight mlp.experts.1.a.weight mlp.experts.1.b.weight mlp.experts.2.a.weight mlp.experts.2.b.weight"
	}
	whole := func(int) string { return attention + mlp }
	norms := func(n int) string { // the first two layers have no experts
		return "norm.weight norm2.weight mlp.up.weight " + []string{"mlp.gate.weight mlp.experts.0.up.weight mlp.experts.1.up.weight mlp.experts.2.up.weight mlp.down.weight", ""}[min(n/2, 1)]
	}
	other := func(n int) string { return attention + mlp + []string{"", "scan.weight"}[n%5/4] }
	masked := func(int) string {
		return "attention.self.query.weight LayerNorm.weight LayerNorm.bias attn_ln.weight attn_ln.bias"
	} // of ESM and of GTE
	for _, c := range []struct {
		names        func(n int) string
		layers       int
		config, lost string // lost is the start of a name, in which * stands for each layer
		found        string
	}{
		{whole, 6, "", "3.mlp.", "3.mlp.a.weight"},
		{whole, 3, "", "0.mlp.", "0.mlp.a.weight"},
		{whole, 2, "", "1.mlp.", ""},
		{whole, 6, "", "5.self_attn.", "5.self_attn.k_proj.weight"},
		{whole, 6, "", "3.m", ""}, // a norm and its block: such a layer may be left out on purpose
		{other, 6, "", "4.mlp.", ""},
		{other, 6, "", "3.mlp.", "3.mlp.a.weight"},
		{whole, 6, "", "2.self_attn.v", "2.self_attn.v_proj.weight"},
		{whole, 4, "", "2.self_attn.k", "2.self_attn.k_proj.weight"},
		{whole, 3, "", "1.self_attn.v", ""},
		{whole, 6, "", "5.self_attn.v", "5.self_attn.v_proj.weight"},
		{whole, 6, `,"num_kv_shared_layers":1`, "2.self_attn.v", ""},
		{whole, 6, `,"num_kv_shared_layers":0`, "2.self_attn.v", "2.self_attn.v_proj.weight"},
		{whole, 6, `,"layer_types":["full","full","window","full","full","full"]`, "2.self_attn.v", ""},
		{whole, 6, `,"layer_types":["full",{},"window","window",{},{}]`, "2.self_attn.v", "2.self_attn.v_proj.weight"},
		{whole, 6, "", "2.m.", "2.m.weight"},
		{whole, 6, "", "2.n.", "2.n.weight"},
		{norms, 6, "", "2.norm.", "2.norm.weight"},
		{norms, 6, "", "0.norm.", ""},
		{masked, 6, "", "2.LayerNorm.", "2.LayerNorm.bias"},
		{masked, 6, "", "2.attn_ln.", "2.attn_ln.bias"},
		{whole, 6, `,"layer_types":["full","full",{},"full","full","full"]`, "2.self_attn.v", ""},
		{whole, 6, `,"layer_types":["full","full","full","full","full","full"]`, "2.self_attn.v", "2.self_attn.v_proj.weight"},
		{experts, 6, "", "*.mlp.experts.0.b", "0.mlp.experts.0.b.weight"},
		{experts, 6, "", "*.mlp.experts.2", ""},
		{experts, 6, "", "3.mlp.experts.2", "3.mlp.experts.2.a.weight"},
	} {
		model := layersOf(t, c.layers, c.names)
		maps.DeleteFunc(model, func(name string, _ safetensors.Tensor) bool {
			before, after, every := strings.Cut("model.layers."+c.lost, "*")
			return strings.HasPrefix(name, before) && (!every || strings.Contains(name, after))
		})
		config := fmt.Sprintf(`{"model_type":"new","architectures":["New"],"num_hidden_layers":%d%s}`, c.layers, c.config)
		found := check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)}))
		require.Len(t, found, min(len(c.found), 1), "%d layers%s without %s: %v", c.layers, c.config, c.lost, found)
		require.Contains(t, strings.Join(found, ""), c.found)
	}
	both := layersOf(t, 6, whole) // two layers lost different things
	for name := range both {
		if strings.HasPrefix(name, "model.layers.2.self_attn.k") || strings.HasPrefix(name, "model.layers.3.self_attn.v") {
			delete(both, name)
		}
	}
	found := check(t, files(map[string]string{"config.json": `{"model_type":"new","architectures":["New"]}`, "model.safetensors": written(t, both)}))
	require.Len(t, found, 1)
	require.Contains(t, found[0], "model.layers.3.self_attn.v_proj.weight")
}

// TestLostKinds: a layer of a hybrid model lacks a tensor that the other layers of its kind have, or a norm that all layers
// have. The first layer may lack a norm of the kind that only some layers have.
func TestLostKinds(t *testing.T) {
	const norms, attention, mamba, mlp = "input_layernorm.weight post_attention_layernorm.weight ", "self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight self_attn.o_proj.weight ", "mamba.in_proj.weight mamba.A_log mamba.norm.weight mamba.out_proj.weight ", "mlp.up_proj.weight mlp.down_proj.weight "
	mixed := func(n int) string { return norms + mlp + []string{mamba, mamba, attention}[n%3] }
	one := func(n int) string { return norms + mlp + []string{mamba, attention}[n%5/4] } // layer 4 alone has an attention
	sparse := func(n int) string {
		return norms + attention + []string{mlp, "mlp.gate.weight mlp.experts.up_proj post_mlp_layernorm.weight"}[min(n, 1)]
	}
	single := func(n int) string { return "norm.weight " + []string{mamba, attention, mlp, "moe.gate.weight"}[n%4] }
	lfm := func(n int) string {
		return "operator_norm.weight " + mlp + []string{"conv.in_proj.weight conv.conv.weight", attention}[n/3%2]
	}
	pure := func(n int) string { return []string{"", "norm1.weight "}[min(n, 1)] + "conv.weight bn.weight" } // without blocks
	scaled := func(n int) string { return norms + attention + []string{"", "self_attn.scale"}[min(n, 1)] }
	for _, c := range []struct {
		names       func(n int) string
		lost, found string // lost is the start of a name
	}{
		{mixed, "", ""},
		{one, "", ""},
		{sparse, "", ""},
		{single, "", ""},
		{scaled, "", ""},
		{lfm, "1.conv.", "model.layers.1.{conv,self_attn}"},
		{pure, "1.conv.", ""},
		{pure, "", ""},
		{mixed, "1.mamba.", "model.layers.1.{mamba,self_attn}"},
		{mixed, "8.self_attn.", "model.layers.8.{mamba,self_attn}"},
		{mixed, "0.mlp.", "0.mlp.down_proj.weight"},
		{mixed, "0.mamba.A_log", "0.mamba.A_log"},
		{mixed, "7.mamba.norm", "7.mamba.norm.weight"},
		{mixed, "8.self_attn.o_proj", "8.self_attn.o_proj.weight"},
		{mixed, "8.self_attn.k_proj", "8.self_attn.k_proj.weight"},
		{mixed, "8.self_attn.v_proj", ""}, // of three attentions
		{mixed, "0.input", "0.input_layernorm.weight"},
		{mixed, "8.post", "8.post_attention_layernorm.weight"},
		{one, "4.input", "4.input_layernorm.weight"},
		{one, "4.self_attn.", "model.layers.4."}, // all other layers have a mamba instead
		{sparse, "0.input", ""},                  // it also lacks a norm that only the others need
		{sparse, "1.mlp.gate", "1.mlp.gate.weight"},
		{sparse, "3.post_mlp", ""}, // the first layer has none either
		{single, "2.norm", "2.norm.weight"},
		{single, "0.norm", ""},
	} {
		model := layersOf(t, 9, c.names)
		if c.lost != "" {
			maps.DeleteFunc(model, func(name string, _ safetensors.Tensor) bool {
				return strings.HasPrefix(name, "model.layers."+c.lost)
			})
		}
		found := check(t, files(map[string]string{"config.json": `{"model_type":"new","architectures":["New"],"num_hidden_layers":9}`, "model.safetensors": written(t, model)}))
		require.Len(t, found, min(len(c.found), 1), "without %s: %v", c.lost, found)
		require.Contains(t, strings.Join(found, ""), c.found)
	}
}

// TestDraftsFirstNorm: the first layer of a draft model, which has fc.weight, may have no norm.
func TestDraftsFirstNorm(t *testing.T) {
	model := layersOf(t, 4, func(n int) string {
		return "mlp.up_proj.weight self_attn.q_proj.weight " + []string{"", "input_layernorm.weight"}[min(n, 1)]
	})
	for _, want := range []int{1, 0} {
		require.Len(t, check(t, files(map[string]string{"config.json": `{"model_type":"new","architectures":["New"]}`, "model.safetensors": written(t, model)})), want)
		model["fc.weight"] = zeros(t, 2, 2)
	}
}

// TestLostOutside: a language model lacks its embedding or the norm after its layers, or half of a module next to them. Models
// that are not known to have these are no findings.
func TestLostOutside(t *testing.T) {
	names := func(int) string { return "input_layernorm.weight input_layernorm.bias attn.weight" }
	const text = `"architectures":["NewForCausalLM"],"vocab_size":2`
	for _, c := range []struct{ config, lost, found string }{
		{text, "", ""},
		{text, "model.embed_tokens.weight", "no embedding is stored beside the layers below \"model.\""},
		{text, "model.norm.weight model.norm.bias", "no norm is stored beside the layers below \"model.\""},
		{text, "model.norm.weight", `"model.norm.weight"`},
		{text, "model.norm.bias", `"model.norm.bias"`},
		{text, "model.project.dense.weight", `"model.project.dense.weight"`},
		{text, "lm_head.weight model.pred_layer.proj.weight", ""}, // tied
		{`"architectures":["NewModel"]`, "model.embed_tokens.weight", ""},
		{`"architectures":["NewDraftModel"],"vocab_size":2`, "model.embed_tokens.weight", ""},
		{`"architectures":["NewForCausalLMEagle3"],"vocab_size":2`, "model.embed_tokens.weight", ""},
		{`"architectures":["New"]`, "model.norm.weight model.norm.bias", ""},
		{`"vocab_size":2`, "model.norm.bias", ""},
	} {
		model := layersOf(t, 4, names)
		for _, name := range []string{"model.norm.bias", "model.project.dense.weight", "model.project.dense.bias", "model.mask_token", "lm_head.weight", "lm_head.bias", "model.pred_layer.proj.weight", "model.pred_layer.proj.bias"} {
			model[name] = zeros(t, 2)
		}
		for name := range strings.FieldsSeq(c.lost) {
			require.Contains(t, model, name)
			delete(model, name)
		}
		found := check(t, files(map[string]string{"config.json": `{"model_type":"new",` + c.config + `}`, "model.safetensors": written(t, model)}))
		require.Len(t, found, min(len(c.found), 1), "%s without %s: %v", c.config, c.lost, found)
		require.Contains(t, strings.Join(found, ""), c.found)
	}
	model := layersOf(t, 4, func(int) string { return "input_layernorm.weight attn.weight" })
	delete(model, "model.embed_tokens.weight")
	delete(model, "model.norm.weight")
	model["model.shared.weight"], model["model.ln_out.weight"] = zeros(t, 2, 2), zeros(t, 2)
	require.Empty(t, check(t, files(map[string]string{"config.json": `{"model_type":"new",` + text + `}`, "model.safetensors": written(t, model)})))
}

// TestNotedEmbedding: the finding for a lost embedding names the metadata that lists it as another name of a stored tensor.
func TestNotedEmbedding(t *testing.T) {
	model := layersOf(t, 4, func(int) string { return "input_layernorm.weight attn.weight" })
	delete(model, "model.embed_tokens.weight")
	model["lm_head.weight"] = zeros(t, 2)
	for metadata, found := range map[[2]string]string{
		{"model.embed_tokens.weight", "lm_head.weight"}:     `no embedding is stored beside the layers below "model." in "model.safetensors", but the metadata has "model.embed_tokens.weight" as another name of "lm_head.weight"`,
		{"model.embed_tokens.weight", "absent"}:             "but a language model has one",
		{"embed_tokens.weight", "lm_head.weight"}:           "but a language model has one",
		{"model.layers.0.embed.weight", "lm_head.weight"}:   "but a language model has one",
		{"model.rotary_emb.inv_freq", "lm_head.weight"}:     "but a language model has one",
		{"model.final.norm.weight", "model.layers.0.norm2"}: "but a language model has one",
	} {
		var file strings.Builder
		require.NoError(t, safetensors.Write(&file, model, map[string]string{"format": "pt", metadata[0]: metadata[1]}))
		findings := check(t, files(map[string]string{"config.json": `{"model_type":"new","architectures":["NewForCausalLM"],"vocab_size":2}`, "model.safetensors": file.String()}))
		require.Len(t, findings, 1)
		require.Contains(t, findings[0], found)
	}
}

// TestBiasFits: a bias that fits neither the rows nor the columns of its weight is a finding.
func TestBiasFits(t *testing.T) {
	config := `{"model_type":"new"}`
	model := layersOf(t, 1, hybrids["alike"])
	var err error
	model["model.layers.0.a.o.bias"], err = safetensors.NewTensor(safetensors.F32, []int{3}, make([]float32, 3))
	require.NoError(t, err)
	found := check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)}))
	require.Len(t, found, 1)
	require.Contains(t, found[0], `"model.layers.0.a.o.bias" has the shape [3]`)
}

// TestAdapterInShards: peft opens no shards, with an index or without one.
func TestAdapterInShards(t *testing.T) {
	const config, want = `{"peft_type":"LORA","r":2}`, `missing: "x/adapter_model.safetensors" is missing: peft opens an adapter in one file, and "x/adapter_model-00001-of-00001.safetensors" is a shard`
	one := weights(t, map[string]float32{"base_model.model.q.lora_A.weight": 1})
	shard := map[string]string{"x/adapter_config.json": config, "x/adapter_model-00001-of-00001.safetensors": one}
	require.Equal(t, []string{want}, check(t, files(shard)))
	shard["x/adapter_model.safetensors.index.json"] = index(t, map[string]string{"base_model.model.q.lora_A.weight": "adapter_model-00001-of-00001.safetensors"})
	require.Equal(t, []string{want}, check(t, files(shard)))
}

// TestNames: a model under a name that no library opens is a finding, and so is a second one where case
// does not count.
func TestNames(t *testing.T) {
	config := `{"model_type":"new","architectures":["New"]}`
	one, two := weights(t, map[string]float32{"a": 1}), weights(t, map[string]float32{"a": 2})
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"copy of a browser": {map[string]string{"model (1).safetensors": one}, `missing: "model.safetensors"`},
		"capital":           {map[string]string{"Model.safetensors": one}, `missing: "model.safetensors"`},
		"any name":          {map[string]string{"artist.safetensors": one}, ""},
		"one shard":         {map[string]string{"model-00001-of-00001.safetensors": one}, `no-index: the shard "model-00001-of-00001.safetensors" has no index`},
		"one shard, torch":  {map[string]string{"pytorch_model-00001-of-00001.bin": torchFile(t, map[string]float32{"a": 2})}, `no-index: the shard "pytorch_model-00001-of-00001.bin" has no index`},
		"twin":              {map[string]string{"Model.safetensors": two, "model.safetensors": one}, `ambiguous: beside "model.safetensors", "Model.safetensors"`},
		"equal twin":        {map[string]string{"Model.safetensors": one, "model.safetensors": one}, ""},
		"two libraries":     {map[string]string{"diffusion_pytorch_model.safetensors": two, "model.safetensors": one}, `ambiguous: beside "diffusion_pytorch_model.safetensors"`},
		"shards beside":     {map[string]string{"diffusion_pytorch_model.safetensors": one, "model.safetensors.index.json": index(t, map[string]string{"a": "model-00001-of-00001.safetensors"}), "model-00001-of-00001.safetensors": two}, `ambiguous: beside "diffusion_pytorch_model.safetensors", "model.safetensors.index.json", "model-00001-of-00001.safetensors" are read by other libraries: the tensor "a" differs (other numbers)`},
		"torch beside":      {map[string]string{"diffusion_pytorch_model.safetensors": one, "pytorch_model.bin": torchFile(t, map[string]float32{"a": 2})}, `ambiguous: beside "diffusion_pytorch_model.safetensors", "pytorch_model.bin" is`},
		"beside torch":      {map[string]string{"diffusion_pytorch_model.bin": torchFile(t, map[string]float32{"a": 2}), "model.safetensors": one}, `ambiguous: beside "diffusion_pytorch_model.bin", "model.safetensors" is`},
		"equal shards":      {map[string]string{"diffusion_pytorch_model.safetensors": one, "model.safetensors.index.json": index(t, map[string]string{"a": "model-00001-of-00001.safetensors"}), "model-00001-of-00001.safetensors": one}, ""},
		"no tensors":        {map[string]string{"model.safetensors": weights(t, nil)}, `missing: "model.safetensors" has no tensors`},
		"no shards":         {map[string]string{"model.safetensors.index.json": `{"metadata":{},"weight_map":{}}`}, "names no tensors"},
		"no modules.json":   {map[string]string{"model.safetensors": one, "1_Pooling/config.json": "{}"}, `missing: "modules.json"`},
		"no model_index":    {map[string]string{"scheduler/scheduler_config.json": "{}", "unet/diffusion_pytorch_model.safetensors": one}, `missing: "model_index.json"`},
	} {
		if !strings.Contains(name, "model_index") {
			c.files["config.json"] = config
		}
		found := check(t, files(c.files))
		if c.want == "" {
			require.Empty(t, found, name)
			continue
		}
		require.Len(t, found, 1, name)
		require.Contains(t, found[0], c.want, name)
	}
}

// TestWrongShards: a finding says which shard lacks a tensor, and which one has it.
func TestWrongShards(t *testing.T) {
	first, second := weights(t, map[string]float32{"a": 1}), weights(t, map[string]float32{"b": 2, "c": 3})
	for want, where := range map[string]map[string]string{
		`missing: "first.safetensors" lacks the tensor "b", which the index "model.safetensors.index.json" places there instead of in "second.safetensors"`: {
			"a": "first.safetensors", "b": "first.safetensors", "c": "second.safetensors"},
		`missing: "first.safetensors" lacks the tensor "x", which the index "model.safetensors.index.json" places there`: {
			"a": "first.safetensors", "b": "second.safetensors", "c": "second.safetensors", "x": "first.safetensors"},
	} {
		found := check(t, files(map[string]string{"first.safetensors": first, "second.safetensors": second, "model.safetensors.index.json": index(t, where)}))
		require.Contains(t, found, want)
	}
}

// TestAdapterKinds: the config of an adapter and its tensors are of one method, and all modules have its parts.
func TestAdapterKinds(t *testing.T) {
	matrix := func(rows, columns int) safetensors.Tensor {
		x, err := safetensors.NewTensor(safetensors.F32, []int{rows, columns}, make([]float32, rows*columns))
		require.NoError(t, err)
		return x
	}
	const q = "base_model.model.q."
	lora := map[string]safetensors.Tensor{q + "lora_A.weight": matrix(2, 3), q + "lora_B.weight": matrix(3, 2)}
	uneven := map[string]safetensors.Tensor{q + "lora_A.weight": matrix(2, 3), q + "lora_B.weight": matrix(3, 4)}
	loha := map[string]safetensors.Tensor{q + "hada_w1_a": matrix(3, 2), q + "hada_w1_b": matrix(2, 3), q + "hada_w2_a": matrix(3, 2), q + "hada_w2_b": matrix(2, 3)}
	biased := maps.Clone(lora)
	bias, err := safetensors.NewTensor(safetensors.F32, []int{3}, make([]float32, 3))
	require.NoError(t, err)
	biased[q+"lora_B.bias"] = bias
	saved, labels := maps.Clone(lora), maps.Clone(lora)
	saved["base_model.model.lm_head.weight"], saved["base_model.model.model.norm.weight"] = matrix(3, 3), bias
	labels["base_model.model.score.weight"] = matrix(2, 3)
	part := maps.Clone(loha)
	delete(part, q+"hada_w2_b")
	for name, c := range map[string]struct {
		tensors      map[string]safetensors.Tensor
		config, want string
	}{
		"LoRA":          {lora, `{"peft_type":"LORA","r":2}`, ""},
		"rank pattern":  {lora, `{"peft_type":"LORA","r":8,"rank_pattern":{"q":2}}`, ""},
		"other pattern": {lora, `{"peft_type":"LORA","r":8,"rank_pattern":{"q":4}}`, "says r = 8"},
		"uneven":        {uneven, `{"peft_type":"LORA","r":4,"rank_pattern":{"v":2}}`, "one rank"},
		"other method":  {lora, `{"peft_type":"LOHA","r":2}`, `peft_type "LOHA", but the tensors are those of LORA`},
		"new method":    {lora, `{"peft_type":"NEW","r":2}`, ""},
		"no method":     {lora, `{"r":2}`, "no peft_type"},
		"bias of LoRA":  {biased, `{"peft_type":"LORA","r":2,"lora_bias":true}`, ""},
		"no config":     {lora, "", `"adapter_config.json" is missing`},
		"DoRA":          {lora, `{"peft_type":"LORA","r":2,"use_dora":true}`, "use_dora"},
		"saved module":  {lora, `{"peft_type":"LORA","r":2,"modules_to_save":["head"]}`, "modules_to_save"},
		"saved modules": {saved, `{"peft_type":"LORA","r":2,"modules_to_save":["lm_head","model.norm"]}`, ""},
		"of two saved":  {saved, `{"peft_type":"LORA","r":2,"modules_to_save":["lm_head","embed_tokens"]}`, `no tensor of the modules "embed_tokens", which`},
		"too many":      {saved, `{"peft_type":"LORA","r":2,"modules_to_save":["lm_head"` + strings.Repeat(`,"x"`, 100) + `]}`, ""},
		"classifier":    {labels, `{"peft_type":"LORA","r":2,"modules_to_save":["classifier","score"]}`, ""},
		"no classifier": {saved, `{"peft_type":"LORA","r":2,"modules_to_save":["lm_head","classifier","score"]}`, `"classifier", "score"`},
		"LoHa":          {loha, `{"peft_type":"LOHA","r":2}`, ""},
		"part of LoHa":  {part, `{"peft_type":"LOHA","r":2}`, "hada_w2_b"},
		"rank of LoHa":  {loha, `{"peft_type":"LOHA","r":4}`, "says r = 4"},
	} {
		model := map[string]string{"adapter_model.safetensors": written(t, c.tensors)}
		if c.config != "" {
			model["adapter_config.json"] = c.config
		}
		found := check(t, files(model))
		if c.want == "" {
			require.Empty(t, found, name)
			continue
		}
		require.Len(t, found, 1, name)
		require.Contains(t, found[0], c.want, name)
	}
}

// TestBrokenTorch: a file of torch.save without tensors is a finding, not an error.
func TestBrokenTorch(t *testing.T) {
	empty := "\x80\x02}q\x00X\x01\x00\x00\x00aK\x01s."
	found := check(t, files(map[string]string{"other.bin": empty}))
	require.Len(t, found, 1)
	require.Contains(t, found[0], `unreadable: "other.bin"`)
}

// TestHeads: a class of a model has one of its heads and not another, and a config leaves out what is
// the default.
func TestHeads(t *testing.T) {
	tensor := func(shape ...int) safetensors.Tensor {
		n := 1
		for _, dim := range shape {
			n *= dim
		}
		x, err := safetensors.NewTensor(safetensors.F32, shape, make([]float32, n))
		require.NoError(t, err)
		return x
	}
	for name, c := range map[string]struct {
		config string
		names  []string // of tensors besides those of the layer
		found  int
	}{
		"tokens":              {`{"model_type":"distilbert"}`, []string{"classifier.weight", "classifier.bias"}, 0},
		"sequences":           {`{"model_type":"distilbert"}`, []string{"classifier.weight", "classifier.bias", "pre_classifier.weight", "pre_classifier.bias"}, 0},
		"tied head with bias": {`{"model_type":"gptj","tie_word_embeddings":true}`, []string{"lm_head.bias"}, 0},
		"head without weight": {`{"model_type":"gptj","tie_word_embeddings":false}`, []string{"lm_head.bias"}, 1},
		"half of a head":      {`{"model_type":"distilbert"}`, []string{"classifier.weight"}, 1},
		"decoder of Donut":    {`{"decoder":{"model_type":"mbart"}}`, []string{"decoder.model.decoder.layer_norm.weight", "decoder.model.decoder.layer_norm.bias"}, 0},
		"no mask token":       {`{"model_type":"dinov2","use_mask_token":false}`, []string{"embeddings.cls_token", "embeddings.position_embeddings", "embeddings.patch_embeddings.projection.weight", "embeddings.patch_embeddings.projection.bias"}, 0},
		"pooler of BERT":      {`{"model_type":"bert"}`, []string{"pooler.dense.weight"}, 1},
		"head of an old BERT": {`{"model_type":"bert"}`, []string{"cls.seq_relationship.weight", "cls.seq_relationship.bias"}, 0},
	} {
		model := make(map[string]safetensors.Tensor)
		for _, name := range c.names {
			model[name] = tensor(2)
		}
		require.Len(t, check(t, files(map[string]string{"config.json": c.config, "model.safetensors": written(t, model)})), c.found, name)
	}
	for config, found := range map[string]int{
		`{"model_type":"gemma3_text","hidden_size":6,"num_attention_heads":2,"num_key_value_heads":1}`:              0, // head_dim 256, made small here
		`{"model_type":"gemma3_text","hidden_size":6,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":4}`: 0,
		`{"model_type":"gemma3_text","hidden_size":6,"num_attention_heads":2,"num_key_value_heads":1,"head_dim":5}`: 1,
		`{"model_type":"qwen3","hidden_size":6,"num_attention_heads":2,"num_key_value_heads":1}`:                    0,
		`{"model_type":"mistral","hidden_size":6,"num_attention_heads":2,"head_dim":4}`:                             0, // 8 heads of keys
		`{"model_type":"llama","hidden_size":6,"num_attention_heads":2,"head_dim":4}`:                               1,
	} {
		model := map[string]safetensors.Tensor{"model.embed_tokens.weight": tensor(3, 6), "model.norm.weight": tensor(6)}
		for name, shape := range map[string][]int{
			"self_attn.q_proj": {8, 6}, "self_attn.k_proj": {4, 6}, "self_attn.v_proj": {4, 6}, "self_attn.o_proj": {6, 8},
			"mlp.gate_proj": {7, 6}, "mlp.up_proj": {7, 6}, "mlp.down_proj": {6, 7}, "input_layernorm": {6}, "post_attention_layernorm": {6},
			"self_attn.q_norm": {4}, "self_attn.k_norm": {4}, "pre_feedforward_layernorm": {6}, "post_feedforward_layernorm": {6},
		} {
			model["model.layers.0."+name+".weight"] = tensor(shape...)
		}
		require.Len(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), found, config)
	}
}

// TestOtherNames: transformers saves some models with other names than their parts have elsewhere: a head that is not
// called lm_head, and layers of a known architecture within one that is not known.
func TestOtherNames(t *testing.T) {
	const rest = "input_layernorm.weight post_attention_layernorm.weight mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight "
	config := `{"model_type":"new","architectures":["New"],"text_config":{"model_type":"qwen3_vl_text","num_hidden_layers":3,"vocab_size":2,"hidden_size":2,"intermediate_size":2,"num_attention_heads":1,"num_key_value_heads":1,"head_dim":2}}`
	text := layersOf(t, 3, func(int) string {
		return rest + "self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight self_attn.o_proj.weight"
	})
	for name, x := range layersOf(t, 3, func(int) string { // a resampler, as Idefics2 has
		return "latents_norm.weight post_attention_layernorm.weight mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight self_attn.q_proj.weight self_attn.k_proj.weight"
	}) {
		if strings.Contains(name, "layers") {
			text[strings.Replace(name, "model", "connector", 1)] = x
		}
	}
	renamed := layersOf(t, 3, func(int) string {
		return rest + "self_attn.to_q.weight self_attn.to_k.weight self_attn.to_v.weight self_attn.to_out.weight"
	})
	for name, model := range map[string]map[string]safetensors.Tensor{"two stacks": text, "renamed": renamed} {
		require.Empty(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), name)
		delete(model, "model.layers.1.mlp.up_proj.weight")
		require.Len(t, check(t, files(map[string]string{"config.json": config, "model.safetensors": written(t, model)})), 1, name)
	}

	untied := `{"model_type":"new","architectures":["NewForCausalLM"],"tie_word_embeddings":false}`
	model := layersOf(t, 2, hybrids["alike"])
	require.Len(t, check(t, files(map[string]string{"config.json": untied, "model.safetensors": written(t, model)})), 1)
	model["head.weight"] = model["model.embed_tokens.weight"]
	require.Empty(t, check(t, files(map[string]string{"config.json": untied, "model.safetensors": written(t, model)})))
}

// TestLibrariesOpen: an index that transformers does not open is a finding, and so are a class without its head, a
// number that is a text, and names that a wrapper of PyTorch has given.
func TestLibrariesOpen(t *testing.T) {
	shards := func(metadata string) string {
		return `{` + metadata + `"weight_map":{"a":"model-00001-of-00001.safetensors"}}`
	}
	const config = `{"model_type":"new","architectures":["New"]}`
	for name, c := range map[string]struct{ index, config, text, tensor, want string }{
		"sound":           {"model", config, shards(`"metadata":{},`), "a", ""},
		"capital":         {"Model", config, shards(`"metadata":{},`), "a", `missing: "model.safetensors.index.json" is missing`},
		"no metadata":     {"model", config, shards(""), "a", `has no object "metadata"`},
		"metadata null":   {"model", `{"_class_name":"New"}`, shards(`"metadata":null,`), "a", `has no object "metadata"`},
		"without config":  {"model", "", shards(""), "a", ""},
		"class of a head": {"model", `{"model_type":"llama","architectures":["LlamaForSequenceClassification"]}`, "", "a", `the class "LlamaForSequenceClassification"`},
		"answers":         {"model", `{"model_type":"modernbert","architectures":["ModernBertForQuestionAnswering"]}`, "", "classifier.weight", "no complete layer of such a model"},
		"number as text":  {"model", `{"model_type":"llama","hidden_size":"16"}`, "", "a", `hidden_size "16"`},
		"compiled":        {"model", config, "", "_orig_mod.a", `the tensor "_orig_mod.a"`},
		"parallel":        {"model", `{"_class_name":"New"}`, "", "module.a", `the tensor "module.a"`},
		"own class":       {"model", "{}", "", "module.a", ""},
		"remote code":     {"model", `{"model_type":"new","architectures":["New"],"auto_map":{}}`, "", "module.a", ""},
		"part compiled":   {"model", config, "", "model._orig_mod.a", `the tensor "model._orig_mod.a" of "model.safetensors" has the name`},
		"recomputed":      {"model", config, "", "h.0._checkpoint_wrapped_module.a", `the tensor "h.0._checkpoint_wrapped_module.a"`},
		"sharded":         {"model", `{"_class_name":"New"}`, "", "_fsdp_wrapped_module.a", `the tensor "_fsdp_wrapped_module.a"`},
		"trl":             {"model", config, "", "pretrained_model.a", `the tensor "pretrained_model.a" of "model.safetensors", and all others, has`},
		"peft":            {"model", config, "", "base_model.model.a", `the tensor "base_model.model.a"`},
	} {
		model := map[string]string{"model-00001-of-00001.safetensors": weights(t, map[string]float32{"a": 1}), c.index + ".safetensors.index.json": c.text}
		if c.text == "" {
			model = map[string]string{"model.safetensors": weights(t, map[string]float32{c.tensor: 1})}
		}
		if c.config != "" {
			model["config.json"] = c.config
		}
		found := strings.Join(check(t, files(model)), "; ")
		require.Equal(t, c.want == "", found == "", "%s: %s", name, found)
		require.Contains(t, found, c.want, name)
		require.Equal(t, strings.Contains(c.want, "the class"), strings.Contains(found, "the class"), name)
	}
}

// TestParts: the modules of sentence-transformers and the components of a pipeline have all their tensors and configs.
func TestParts(t *testing.T) {
	matrix, err := safetensors.NewTensor(safetensors.F32, []int{2, 3}, make([]float32, 6))
	require.NoError(t, err)
	bias, err := safetensors.NewTensor(safetensors.F32, []int{2}, make([]float32, 2))
	require.NoError(t, err)
	const unet = `{"_class_name":"UNet2DModel"}`
	dense := func(bias bool) string {
		return fmt.Sprintf(`{"in_features":3,"out_features":2,"bias":%v,"activation_function":"torch.nn.Identity"}`, bias)
	}
	sentence := map[string]string{
		"modules.json": `[{"path":"","type":"sentence_transformers.models.Transformer"},{"path":"1_Dense","type":"sentence_transformers.models.Dense"}]`,
		"config.json":  `{"model_type":"new"}`, "sentence_bert_config.json": "{}", "model.safetensors": weights(t, map[string]float32{"a": 1}),
		"1_Dense/config.json": dense(true), "1_Dense/model.safetensors": written(t, map[string]safetensors.Tensor{"linear.weight": matrix, "linear.bias": bias}),
	}
	pipeline := map[string]string{
		"model_index.json": `{"unet":["diffusers","UNet2DModel"],"scheduler":["diffusers","DDIMScheduler"]}`, "scheduler/scheduler_config.json": "{}", "unet/config.json": unet,
		"unet/diffusion_pytorch_model.safetensors": written(t, map[string]safetensors.Tensor{"conv_in.weight": matrix, "conv_in.bias": bias, "a.conv_shortcut.weight": matrix}),
	}
	for name, c := range map[string]struct {
		base       map[string]string
		file, text string // the file that differs, and its content; without content, it is removed
		want       string
	}{
		"sentence":         {sentence, "README.md", "", ""},
		"no config":        {sentence, "config.json", "", `"config.json" is missing`},
		"cut config":       {sentence, "sentence_bert_config.json", "{", `unreadable: "sentence_bert_config.json"`},
		"other bias":       {sentence, "1_Dense/config.json", dense(false), "says bias false"},
		"no weight":        {sentence, "1_Dense/model.safetensors", written(t, map[string]safetensors.Tensor{"linear.bias": bias}), `"linear.weight" is not stored`},
		"no bias":          {sentence, "1_Dense/model.safetensors", written(t, map[string]safetensors.Tensor{"linear.weight": matrix}), "says bias true"},
		"of another class": {sentence, "1_Dense/config.json", `{"in_features":4,"out_features":2,"layers":1}`, "in_features 4"},
		"pipeline":         {pipeline, "README.md", "", ""},
		"no component":     {pipeline, "model_index.json", `{"scheduler":["diffusers","DDIMScheduler"]}`, `does not name a library and a class for "unet"`},
		"half a component": {pipeline, "model_index.json", `{"unet":["diffusers"]}`, `does not name a library and a class for "unet"`},
		"without UNet":     {pipeline, "model_index.json", `{"unet":[null,null]}`, ""},
		"cut scheduler":    {pipeline, "scheduler/scheduler_config.json", "<html>", `unreadable: "scheduler/scheduler_config.json"`},
		"bias of a UNet":   {pipeline, "unet/diffusion_pytorch_model.safetensors", written(t, map[string]safetensors.Tensor{"conv_in.weight": matrix}), `"conv_in.bias" is not stored`},
	} {
		model := maps.Clone(c.base)
		if model[c.file] = c.text; c.text == "" {
			delete(model, c.file)
		}
		found := strings.Join(check(t, files(model)), "; ")
		require.Equal(t, c.want == "", found == "", "%s: %s", name, found)
		require.Contains(t, found, c.want, name)
	}
	another := maps.Clone(pipeline) // which the pipeline does not use
	another["transformer/config.json"], another["transformer/diffusion_pytorch_model.safetensors"] = "{}", weights(t, map[string]float32{"a": 1})
	require.Empty(t, check(t, files(another)))
	adapter := maps.Clone(sentence)
	delete(adapter, "config.json")
	delete(adapter, "model.safetensors")
	adapter["adapter_config.json"], adapter["adapter_model.safetensors"] = `{"peft_type":"NEW"}`, weights(t, map[string]float32{"a": 1})
	require.Empty(t, check(t, files(adapter)))
	capital := maps.Clone(sentence)
	capital["1_Dense/Model.safetensors"] = capital["1_Dense/model.safetensors"]
	delete(capital, "1_Dense/model.safetensors")
	require.Len(t, check(t, files(capital)), 1)

	text := layersOf(t, 3, func(int) string {
		return "input_layernorm.weight post_attention_layernorm.weight mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight self_attn.q_proj.weight self_attn.k_proj.weight self_attn.v_proj.weight self_attn.o_proj.weight"
	})
	model := make(map[string]safetensors.Tensor)
	for name, x := range text { // the layers are in an encoder, beside the embedding
		model[strings.Replace(name, "model.layers", "model.encoder.layers", 1)] = x
	}
	require.Empty(t, check(t, files(map[string]string{"config.json": `{"model_type":"new","text_config":{"model_type":"qwen3"}}`, "model.safetensors": written(t, model)})))
}

// TestLostModule: an adapter lacks a module in one layer that it changes in all others, unless its config selects layers.
func TestLostModule(t *testing.T) {
	adapter := make(map[string]float32)
	for n := range 4 {
		for _, module := range []string{"q_proj", "v_proj"} {
			for _, part := range []string{"lora_A", "lora_B"} {
				adapter[fmt.Sprintf("base_model.model.model.layers.%d.self_attn.%s.%s.weight", n, module, part)] = 1
			}
		}
	}
	found := func(config string) string {
		return strings.Join(check(t, files(map[string]string{"adapter_config.json": config, "adapter_model.safetensors": weights(t, adapter)})), "; ")
	}
	const targets = `{"peft_type":"LORA","target_modules":["q_proj","v_proj"]`
	require.Empty(t, found(targets+"}"))
	delete(adapter, "base_model.model.model.layers.2.self_attn.q_proj.lora_A.weight")
	delete(adapter, "base_model.model.model.layers.2.self_attn.q_proj.lora_B.weight")
	require.Contains(t, found(targets+"}"), `no tensor of the module "base_model.model.model.layers.2.self_attn.q_proj"`)
	require.Empty(t, found(targets+`,"exclude_modules":["layers.2.self_attn.q_proj"]}`))
	require.Empty(t, found(`{"peft_type":"LORA","target_modules":".*"}`))
}

// TestWeightsBelow: weights in a directory below their config, which has none itself, are a finding.
func TestWeightsBelow(t *testing.T) {
	config, packed := `{"model_type":"new","architectures":["New"]}`, weights(t, map[string]float32{"a": 1})
	below := map[string]string{"config.json": config, "sub/model.safetensors": packed}
	require.Equal(t, []string{`missing: the weights are missing beside "config.json"; "sub/model.safetensors" is below, where no library looks`}, check(t, files(below)))
	for _, name := range []string{"model.safetensors", "sub/config.json", "sub/adapter_config.json"} {
		with := maps.Clone(below)
		if with[name] = packed; strings.HasSuffix(name, ".json") {
			with[name] = config
		}
		if strings.Contains(name, "adapter") {
			with[name], with["sub/adapter_model.safetensors"] = `{"peft_type":"NEW"}`, with["sub/model.safetensors"]
			delete(with, "sub/model.safetensors")
		}
		require.Empty(t, check(t, files(with)), name)
	}
	require.Empty(t, check(t, files(map[string]string{"config.json": config, "sub/any.safetensors": packed})))
	require.Empty(t, check(t, files(map[string]string{"config.json": "{}", "sub/model.safetensors": packed})))
}

// TestLettersAreNoNumbers: a module whose name is a letter does not count as one of numbered modules.
func TestLettersAreNoNumbers(t *testing.T) {
	model := make(map[string]safetensors.Tensor)
	for _, name := range strings.Fields("x.0.u.weight x.0.u.bias x.1.u.weight x.1.u.bias x.a.u.weight") {
		model[name] = zeros(t, 2, 2)
	}
	fsys := func() map[string]string {
		return map[string]string{"config.json": `{"model_type":"new","architectures":["New"]}`, "model.safetensors": written(t, model)}
	}
	require.Empty(t, check(t, files(fsys())))
	model["x.2.u.weight"] = zeros(t, 2, 2)
	found := check(t, files(fsys()))
	require.Len(t, found, 1)
	require.Contains(t, found[0], `"x.2.u.bias"`)
}
