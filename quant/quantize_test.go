package quant_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/testplatform"
	"github.com/gosafetensors/safetensors/quant"
	"github.com/stretchr/testify/require"
)

var schemes = []quant.Scheme{quant.FP8Block, quant.FP8Channel, quant.NVFP4, quant.MXFP4, quant.Int4, quant.Int8}

// TestQuantizeVectors compares the results with the bytes that compressed-tensors writes.
func TestQuantizeVectors(t *testing.T) {
	for _, name := range vectorFiles(t, "quantize-*.safetensors") {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".safetensors"), func(t *testing.T) {
			f := must(safetensors.Load(name))
			want := maps.Collect(f.Tensors())
			in := map[string]safetensors.Tensor{"a.weight": want["in"]}
			delete(want, "in")
			got, config := quantized(t, in, quant.Scheme(f.Metadata()["scheme"]))
			require.True(t, json.Valid(config))
			require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
			for name, x := range got {
				require.Equal(t, want[name].String(), x.String(), name)
				a := elements[byte](t, want[name])
				require.Equal(t, a, elements[byte](t, x), name)
			}
		})
	}
}

// randomWeights returns a checkpoint of random weights with o rows and i columns.
func randomWeights(r *rand.Rand, dtype safetensors.DType, o, i int) map[string]safetensors.Tensor {
	m := maker{r, map[string]safetensors.Tensor{}}
	m.floats("m.up_proj.weight", dtype, o, i)
	m.floats("m.up_proj.bias", dtype, o)
	m.floats("embed_tokens.weight", dtype, o, i)
	m.floats("norm.weight", dtype, i)
	return m.tensors
}

// TestQuantizeAndBack checks that Dequantize undoes Quantize up to rounding, that reading a slice
// of a result gives a part of the whole result, and which tensors stay unquantised.
func TestQuantizeAndBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	worst := map[quant.Scheme]float64{quant.FP8Block: 0.04, quant.FP8Channel: 0.04, quant.NVFP4: 0.13, quant.MXFP4: 0.2, quant.Int4: 0.15, quant.Int8: 0.01}
	for _, scheme := range schemes {
		for _, dtype := range []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32} {
			in := randomWeights(r, dtype, 1+r.IntN(300), 128*(1+r.IntN(3)))
			q, config := quantized(t, in, scheme)
			for _, name := range []string{"m.up_proj.bias", "embed_tokens.weight", "norm.weight"} {
				require.Equal(t, in[name], q[name])
			}
			require.Contains(t, string(config), `"ignore":["embed_tokens","lm_head"]`)
			for name, x := range q {
				all := elements[byte](t, x)
				for range 5 {
					off := r.Int64N(x.Size())
					p := make([]byte, 1+r.Int64N(x.Size()-off))
					must(x.ReadAt(p, off))
					require.Equal(t, all[off:][:len(p)], p, name)
				}
			}
			back := dequantized(t, q, config)
			require.ElementsMatch(t, slices.Collect(maps.Keys(in)), slices.Collect(maps.Keys(back)))
			got := elements[float32](t, back["m.up_proj.weight"])
			want := elements[float32](t, in["m.up_proj.weight"])
			var off, all float64
			for i, v := range want {
				off += math.Pow(float64(v-got[i]), 2)
				all += math.Pow(float64(v), 2)
			}
			require.Less(t, math.Sqrt(off/all), worst[scheme], "%s %v: relative error", scheme, dtype)
		}
	}
}

// TestSharedGlobalScale: fused projections share the global scale that follows from all of them. To
// compute it, each is read once.
func TestSharedGlobalScale(t *testing.T) {
	m := newMaker()
	for _, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
		m.floats("a."+name+".weight", safetensors.BF16, 16, 32)
	}
	d := new(disk)
	q, _ := quantized(t, moved(t, m.tensors, d), quant.NVFP4)
	scale := map[string]float32{}
	for _, name := range []string{"q_proj", "k_proj", "v_proj", "o_proj"} {
		scale[name] = elements[float32](t, q["a."+name+".weight_global_scale"])[0]
	}
	require.EqualValues(t, 4*16*32*2, d.bytes.Load())
	require.Equal(t, scale["q_proj"], scale["k_proj"])
	require.Equal(t, scale["q_proj"], scale["v_proj"])
	require.NotEqual(t, scale["q_proj"], scale["o_proj"])
}

// TestGlobalScaleInParts: the global scale depends on every number, even on the last of more
// numbers than are in memory at once.
func TestGlobalScaleInParts(t *testing.T) {
	const rows, columns = 1 << 15, 32
	numbers := make([]float32, rows*columns)
	numbers[len(numbers)-1] = 448 * 6 / 16
	x := must(safetensors.NewTensor(safetensors.F32, []int{rows, columns}, numbers))
	q, _ := quantized(t, map[string]safetensors.Tensor{"a.weight": x}, quant.NVFP4)
	require.Equal(t, []float32{16}, elements[float32](t, q["a.weight_global_scale"]))

	wide := must(safetensors.NewTensorAt(safetensors.F32, []int{64, 1 << 18}, zeros{}))
	q, _ = quantized(t, map[string]safetensors.Tensor{"a.weight": wide}, quant.NVFP4)
	most := testplatform.Allocated(func() {
		require.Equal(t, []float32{1}, elements[float32](t, q["a.weight_global_scale"]), "that of zeros")
	})
	require.Less(t, most, uint64(32<<20), "the tensor has 64 MiB")
}

// TestFusedPartners: a projection that cannot be quantised shares no global scale.
func TestFusedPartners(t *testing.T) {
	global := func(shape ...int) float32 {
		m := newMaker()
		m.floats("a.gate_proj.weight", safetensors.BF16, 4, 32)
		if shape != nil {
			m.floats("a.up_proj.weight", safetensors.BF16, shape...)
		}
		q, _ := quantized(t, m.tensors, quant.NVFP4)
		return elements[float32](t, q["a.gate_proj.weight_global_scale"])[0]
	}
	require.NotEqual(t, global(), global(64, 32), "the other one has a larger number")
	for _, shape := range [][]int{{}, {64}, {64, 0}, {64, 17}, {2, 32, 32}} {
		require.Equal(t, global(), global(shape...), shape)
	}
}

// TestQuantizeRefuses: a tensor that does not suit a scheme is an error if Targets selects it.
func TestQuantizeRefuses(t *testing.T) {
	m := newMaker()
	m.floats("a.weight", safetensors.BF16, 2, 100)
	m.floats("a.bias", safetensors.BF16, 2)
	m.random("b.weight", safetensors.I64, 2, 128)
	only := func(want string) func(string, safetensors.Tensor) bool {
		return func(name string, _ safetensors.Tensor) bool { return name == want }
	}
	for _, c := range []struct {
		scheme quant.Scheme
		target string
		want   string
	}{
		{"int2", "a.weight", `safetensors: scheme "int2" is not one of [fp8-block fp8-channel int4 int8 mxfp4 nvfp4]`},
		{quant.Int4, "a.weight", `safetensors: tensor "a.weight": 100 columns are not whole groups of 128`},
		{quant.FP8Block, "a.bias", `safetensors: tensor "a.bias": its name does not end in .weight`},
		{quant.FP8Block, "b.weight", `safetensors: tensor "b.weight": I64 [2,128] is not a matrix of BF16, F16 or F32`},
	} {
		_, _, err := quant.Quantize(m.tensors, quant.Recipe{Scheme: c.scheme, Targets: only(c.target)})
		require.EqualError(t, err, c.want)
	}
	for _, scheme := range schemes {
		groups := map[quant.Scheme]string{
			quant.Int4: ", with columns in whole groups of 128", quant.Int8: ", with columns in whole groups of 128",
			quant.MXFP4: ", with columns in whole groups of 32", quant.NVFP4: ", with columns in whole groups of 16",
		}[scheme]
		want := fmt.Sprintf("safetensors: no tensor can be quantised: %s takes matrices of BF16, F16 or F32 named *.weight%s; it takes embeddings, routers and heads only as targets, and never weights of other classes than Linear, such as those of GPT-2 and I-BERT", scheme, groups)
		for _, tensors := range []map[string]safetensors.Tensor{nil, {"b.weight": m.tensors["b.weight"], "norm.weight": m.tensors["a.weight"]}} {
			q, config, err := quant.Quantize(tensors, quant.Recipe{Scheme: scheme})
			require.EqualError(t, err, want)
			require.Nil(t, q)
			require.Nil(t, config)
		}
		_, _, err := quant.Quantize(m.tensors, quant.Recipe{Scheme: scheme, Targets: only("no such tensor")})
		require.EqualError(t, err, "safetensors: no tensor is quantised: Targets selects none")
	}

	for _, scheme := range schemes {
		m.floats("c.weight", safetensors.BF16, 128, 128)
		q, _, err := quant.Quantize(m.tensors, quant.Recipe{Scheme: scheme, Targets: only("c.weight")})
		require.NoError(t, err)
		_, _, err = quant.Quantize(q, quant.Recipe{Scheme: quant.Int8, Targets: only("c.weight")})
		require.ErrorContains(t, err, ": it is quantised already; dequantise it first")
		for name, x := range q { // whichever of the parts remains
			if strings.HasPrefix(name, "c.weight_") {
				_, _, err = quant.Quantize(map[string]safetensors.Tensor{"c.weight": m.tensors["c.weight"], name: x}, quant.Recipe{Scheme: scheme})
				require.ErrorContains(t, err, "belongs to a quantised tensor", name)
			}
		}
	}
}

// TestQuantizedAlready: tensors of layouts that only a config describes in full are refused as quantised ones, too,
// and not for lack of that config, which Quantize does not take.
func TestQuantizedAlready(t *testing.T) {
	for name, tensors := range map[string][]change{
		"GPTQ":   {zeroed("a.qweight", safetensors.I32, 4, 32), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32)},
		"AWQ":    {zeroed("a.qweight", safetensors.I32, 32, 4), zeroed("a.qzeros", safetensors.I32, 1, 4), zeroed("a.scales", safetensors.F16, 1, 32)},
		"affine": {zeroed("a.weight", safetensors.U32, 32, 4), zeroed("a.scales", safetensors.F16, 32, 1), zeroed("a.biases", safetensors.F16, 32, 1)},
	} {
		m := newMaker()
		m.floats("b.weight", safetensors.F16, 128, 128)
		for _, tensor := range tensors {
			tensor(m.tensors)
		}
		_, _, err := quant.Quantize(m.tensors, quant.Recipe{Scheme: quant.Int8})
		require.ErrorContains(t, err, `: it is quantised already; dequantise it first`, name)
	}
}

// TestOnlyLinear: modules that transformers does not make of class Linear stay unchanged, whatever their names, and so do
// embeddings, and the config lists heads that are tied to them. With transformers 5.24, tiny models of all classes were
// loaded to find these names.
func TestOnlyLinear(t *testing.T) {
	m := newMaker()
	for name, shape := range map[string][]int{"h.0.attn.c_attn": {128, 384}, "h.0.attn.c_proj": {128, 128}, "h.0.mlp.c_fc": {128, 512}, "h.0.mlp.c_proj": {512, 128}} {
		m.floats(name+".weight", safetensors.BF16, shape...)
		m.floats(name+".bias", safetensors.BF16, shape[1])
	}
	_, _, err := quant.Quantize(m.tensors, quant.Recipe{Scheme: quant.FP8Channel})
	require.ErrorContains(t, err, "never weights of other classes than Linear, such as those of GPT-2 and I-BERT")
	_, _, err = quant.Quantize(m.tensors, quant.Recipe{Scheme: quant.FP8Channel, Targets: func(name string, _ safetensors.Tensor) bool { return name == "h.0.attn.c_proj.weight" }})
	require.EqualError(t, err, `safetensors: tensor "h.0.attn.c_proj.weight": it is stored transposed, like those of class Conv1D in transformers, which is not quantised: its bias has an element for each column`)

	for _, name := range []string{"h.0.mlp.c_fc", "h.0.mlp.c_proj"} { // those of GPT-Neo, which are Linear
		rows := m.tensors[name+".weight"].Shape()
		m.floats(name+".weight", safetensors.BF16, rows[1], rows[0])
	}
	delete(m.tensors, "h.0.attn.c_attn.weight")
	delete(m.tensors, "h.0.attn.c_attn.bias")
	q, _ := quantized(t, m.tensors, quant.FP8Channel)
	for name := range m.tensors {
		if strings.HasSuffix(name, ".weight") {
			require.Contains(t, q, name+"_scale")
		}
	}

	m = newMaker()
	m.floats("a.weight", safetensors.BF16, 128, 128)
	embeddings := []string{
		"shared", "w", "mask_decoder.iou_token", "mask_decoder.mask_tokens", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
		"query", "encoder.layers.0.attn.rel_pos_emb", "freq_emb", "detr_decoder.reference_points", "head.decoder", "layers.0.block_sparse_moe.gate",
		"bert.embeddings.word_embeddings", "biogpt.embed_tokens", "gpt_neox_japanese.embed_in", "text_model.model.segment_emb",
		"model.model.language_model.model.embed_tokens", "vision_embed_tokens",
	}
	for _, name := range []string{"layers.0.post_attention_layernorm.bias", "lm_head.bias", "decoder.bias"} {
		m.floats(name, safetensors.BF16, 128)
	}
	m.floats("transformer.resblocks.11.attn.in_proj_weight", safetensors.BF16, 384, 128)
	linear := []string{"layers.0.self_attn.query", "layers.0.ada_rms_norm.linear1", "roberta_prelayernorm.encoder.layer.0.output.dense", "part.head.linear1"}
	for _, name := range linear {
		m.floats(name+".weight", safetensors.BF16, 128, 128)
	}
	for _, name := range embeddings {
		m.floats(name+".weight", safetensors.BF16, 128, 128)
	}
	heads := map[string]string{
		"cls.predictions.decoder": "cls.predictions.transform.dense", "predictions.decoder": "predictions.dense", "lm_head.decoder": "lm_head.dense",
		"generator_lm_head": "generator_predictions.dense", "vocab_projector": "vocab_transform", "decoder": "head.dense",
		"entity_predictions.decoder": "entity_predictions.transform.dense", "proj_out": "model.decoder.embed_tokens",
		"output_projection": "model.decoder.layernorm_embedding", "lm_head.out_proj": "model.decoder.layers.0.pre_self_attn_layernorm",
		"part.head.decoder": "part.ultrabert.embed_tokens",
	}
	for _, beside := range heads {
		m.floats(beside+".weight", safetensors.BF16, 128, 128)
	}
	for _, module := range []string{
		"embed_out", "text_model.lm_head", "model.lm_head", "model.vision_embed_tokens", "layers.0.mlp.router",
		"encoder.layers.11.self_attn.q_proj", "encoder.layers.11.self_attn.k_proj", "encoder.layers.11.self_attn.v_proj",
	} {
		heads[module] = "one of the tensors above"
	}
	heads["decoder.cls.predictions.decoder"] = "decoder.cls.predictions.transform.dense"
	m.floats("decoder.cls.predictions.transform.dense.weight", safetensors.BF16, 128, 128)
	q, config := quantized(t, m.tensors, quant.FP8Channel)
	for _, name := range embeddings {
		require.Equal(t, safetensors.BF16, q[name+".weight"].DType(), name)
		require.Contains(t, string(config), fmt.Sprintf("%q", name))
	}
	for head := range heads {
		require.Contains(t, string(config), fmt.Sprintf("%q", head))
	}
	for _, name := range linear {
		require.Equal(t, safetensors.F8_E4M3, q[name+".weight"].DType(), name)
	}

	m.floats("proj_out.weight", safetensors.BF16, 128, 128)
	_, config, err = quant.Quantize(m.tensors, quant.Recipe{Scheme: quant.FP8Channel, Targets: func(name string, _ safetensors.Tensor) bool { return name == "proj_out.weight" }})
	require.NoError(t, err)
	require.NotContains(t, string(config), `"proj_out"`, "it is stored, and quantised")

	// Each of these needs both of its neighbours.
	delete(m.tensors, "layers.0.post_attention_layernorm.bias")
	delete(m.tensors, "lm_head.bias")
	delete(m.tensors, "lm_head.dense.weight")
	_, config = quantized(t, m.tensors, quant.FP8Channel)
	require.NotContains(t, string(config), `"layers.0.mlp.router"`, "Mixtral has no such bias, and no such module")
	require.NotContains(t, string(config), `"lm_head.decoder"`)

	m.floats("encoder.layer.0.output.dense.weight", safetensors.F32, 128, 128) // I-BERT
	m.floats("encoder.layer.0.output.dense.weight_integer", safetensors.F32, 128, 128)
	q, _ = quantized(t, m.tensors, quant.FP8Channel)
	require.Equal(t, safetensors.F32, q["encoder.layer.0.output.dense.weight"].DType())
	_, _, err = quant.Quantize(m.tensors, quant.Recipe{Scheme: quant.FP8Channel, Targets: func(name string, _ safetensors.Tensor) bool { return name == "encoder.layer.0.output.dense.weight" }})
	require.EqualError(t, err, `safetensors: tensor "encoder.layer.0.output.dense.weight": it belongs to a class of I-BERT, which is not quantised: there is a tensor "encoder.layer.0.output.dense.weight_integer"`)
}

// TestSeparateExperts: the experts of Llama 4 become matrices of their own, with the numbers of a conversion by hand. A
// tensor that has one of their names already, and other shapes, are left to the caller.
func TestSeparateExperts(t *testing.T) {
	const experts, inputs, hidden = 3, 4, 2
	fused := "model.layers.0.feed_forward.experts."
	m := newMaker()
	m.floats("a.weight", safetensors.BF16, 128, 128)
	m.floats(fused+"gate_up_proj", safetensors.F32, experts, inputs, 2*hidden)
	m.floats(fused+"down_proj", safetensors.F32, experts, hidden, inputs)
	both, err := safetensors.Append[float32](nil, m.tensors[fused+"gate_up_proj"])
	require.NoError(t, err)
	down, err := safetensors.Append[float32](nil, m.tensors[fused+"down_proj"])
	require.NoError(t, err)

	none := quant.Recipe{Scheme: quant.FP8Channel, Targets: func(name string, _ safetensors.Tensor) bool { return name == "a.weight" }}
	q, config, err := quant.Quantize(m.tensors, none) // so the experts are only separated
	require.NoError(t, err)
	require.Len(t, q, 2+3*experts)
	for e := range experts {
		for _, part := range []struct {
			name      string
			rows      int
			columns   int
			of        []float32
			wide, add int
		}{
			{"gate_proj", hidden, inputs, both, 2 * hidden, 0},
			{"up_proj", hidden, inputs, both, 2 * hidden, hidden},
			{"down_proj", inputs, hidden, down, inputs, 0},
		} {
			name := fmt.Sprintf("%s%d.%s", fused, e, part.name)
			require.Contains(t, string(config), fmt.Sprintf("%q", name))
			matrix := q[name+".weight"]
			require.Equal(t, []int{part.rows, part.columns}, matrix.Shape())
			values, err := safetensors.Append[float32](nil, matrix)
			require.NoError(t, err)
			for i, v := range values {
				row, column := i/part.columns, i%part.columns
				require.Equal(t, part.of[(e*part.columns+column)*part.wide+part.add+row], v, "%s[%d,%d]", name, row, column)
			}
		}
	}

	q, config = quantized(t, m.tensors, quant.FP8Channel)
	require.Equal(t, safetensors.F8_E4M3, q[fused+"2.down_proj.weight"].DType())
	require.NotContains(t, string(config), "experts")

	m.floats(fused+"1.up_proj.weight", safetensors.F32, 1)
	_, _, err = quant.Quantize(m.tensors, none)
	require.ErrorContains(t, err, `gate_up_proj": its parts have the name "model.layers.0.feed_forward.experts.1.up_proj.weight", which another tensor has`)
	delete(m.tensors, fused+"1.up_proj.weight")

	// A layer whose shapes do not fit stays as it is, and the layers after it are separated.
	odd := "model.earlier.0.feed_forward.experts."
	m.floats(odd+"gate_up_proj", safetensors.F32, experts, inputs, 2*hidden)
	m.floats(odd+"down_proj", safetensors.F32, experts, hidden+1, inputs)
	q, _, err = quant.Quantize(m.tensors, none)
	require.NoError(t, err)
	require.Contains(t, q, odd+"gate_up_proj")
	require.Contains(t, q, fused+"0.gate_proj.weight")

	// The elements of a tensor may share their bytes, so that a small file has any number of experts. The error names the first
	// layer.
	many := map[string]safetensors.Tensor{"a.weight": m.tensors["a.weight"]}
	for layer := range 10 {
		start := fmt.Sprintf("layers.%d.feed_forward.experts.", layer)
		fill := func([]float32) error { return nil }
		many[start+"gate_up_proj"] = must(safetensors.NewTensorFunc(safetensors.F32, []int{350_000, 2, 4}, fill))
		many[start+"down_proj"] = must(safetensors.NewTensorFunc(safetensors.F32, []int{350_000, 2, 2}, fill))
	}
	_, _, err = quant.Quantize(many, none)
	require.EqualError(t, err, `safetensors: tensor "layers.0.feed_forward.experts.gate_up_proj": all experts together have more than 1048576 matrices`)

	m.floats(fused+"down_proj", safetensors.F32, experts, hidden+1, inputs)
	q, _, err = quant.Quantize(m.tensors, none)
	require.NoError(t, err)
	require.Contains(t, q, fused+"gate_up_proj")
}

// TestHeads: output heads stay unchanged, and the config lists them as ignored. Some have names that other modules also have:
// then a head has the shape of an embedding.
func TestHeads(t *testing.T) {
	m := newMaker()
	heads := []string{"lm_head", "embed_out", "generator_lm_head", "vocab_projector", "lm_heads.0", "cls.predictions.decoder", "predictions.decoder", "lm_head.decoder", "mlm_head.decoder"}
	for _, name := range heads {
		m.floats(name+".weight", safetensors.BF16, 256, 128)
	}
	m.floats("model.embed_tokens.weight", safetensors.BF16, 384, 128)
	for _, name := range []string{"proj_out", "output", "head", "decoder", "output_projection", "cls"} {
		heads = append(heads, name)
		m.floats(name+".weight", safetensors.BF16, 384, 128)
		m.floats("image."+name+".weight", safetensors.BF16, 256, 128)
	}
	q, config := quantized(t, m.tensors, quant.FP8Channel)
	for _, name := range heads {
		require.Equal(t, safetensors.BF16, q[name+".weight"].DType(), name)
		require.Contains(t, string(config), fmt.Sprintf("%q", name))
		if _, other := m.tensors["image."+name+".weight"]; other {
			require.Equal(t, safetensors.F8_E4M3, q["image."+name+".weight"].DType(), name)
		}
	}
}

// TestQuantizationConfig compares the whole config of each scheme with that of the preset of
// compressed-tensors.
func TestQuantizationConfig(t *testing.T) {
	for scheme, want := range map[quant.Scheme]string{
		quant.FP8Block: `"format":"float-quantized","input_activations":{"dynamic":true,"group_size":128,"num_bits":8,"strategy":"group","symmetric":true,"type":"float"},
			"weights":{"block_structure":[128,128],"dynamic":false,"group_size":null,"num_bits":8,"strategy":"block","symmetric":true,"type":"float"}`,
		quant.FP8Channel: `"format":"float-quantized","input_activations":{"dynamic":true,"group_size":null,"num_bits":8,"strategy":"token","symmetric":true,"type":"float"},
			"weights":{"dynamic":false,"group_size":null,"num_bits":8,"strategy":"channel","symmetric":true,"type":"float"}`,
		quant.NVFP4: `"format":"nvfp4-pack-quantized","input_activations":null,
			"weights":{"dynamic":false,"group_size":16,"num_bits":4,"scale_dtype":"torch.float8_e4m3fn","strategy":"tensor_group","symmetric":true,"type":"float"}`,
		quant.MXFP4: `"format":"mxfp4-pack-quantized","input_activations":null,
			"weights":{"dynamic":false,"group_size":32,"num_bits":4,"scale_dtype":"torch.uint8","strategy":"group","symmetric":true,"type":"float"}`,
		quant.Int4: `"format":"pack-quantized","input_activations":null,
			"weights":{"dynamic":false,"group_size":128,"num_bits":4,"strategy":"group","symmetric":true,"type":"int"}`,
		quant.Int8: `"format":"pack-quantized","input_activations":null,
			"weights":{"dynamic":false,"group_size":128,"num_bits":8,"strategy":"group","symmetric":true,"type":"int"}`,
	} {
		m := newMaker()
		for _, name := range []string{
			// The first three are quantised. The names of routers include those in
			// default_disabled_quantizers.yaml of ModelOpt 0.47.0.
			"a", "x.wq.proj", "x.mlp.experts.0.up_proj",
			"x.gate", "x.shared_expert_gate", "x.router", "wte", "wpe", "lm_head", "score", "classifier", "x.embed_tokens", "q_norm.proj", "x.LayerNorm",
		} {
			m.floats(name+".weight", safetensors.BF16, 1, 128)
		}
		m.floats("flat.weight", safetensors.BF16, 128)
		m.floats("x.bias", safetensors.BF16, 1, 128)
		_, config := quantized(t, m.tensors, scheme)
		format, _, _ := strings.Cut(want, ",")
		require.JSONEq(t, `{"quantization_config":{"quant_method":"compressed-tensors",`+format+`,"quantization_status":"compressed",
			"config_groups":{"group_0":{"targets":["Linear"],"output_activations":null,`+want+`}},
			"ignore":["classifier","lm_head","q_norm.proj","score","wpe","wte","x.LayerNorm","x.embed_tokens","x.gate","x.router","x.shared_expert_gate"],
			"kv_cache_scheme":null,"global_compression_ratio":null}}`, string(config))
	}
}

// TestSingleColumn quantises rows of one number, including the last row of a band.
func TestSingleColumn(t *testing.T) {
	want := []float32{448, 896, -224}
	x := must(safetensors.NewTensor(safetensors.F32, []int{3, 1}, want))
	q, config := quantized(t, map[string]safetensors.Tensor{"a.weight": x}, quant.FP8Channel)
	require.Equal(t, want, elements[float32](t, dequantized(t, q, config)["a.weight"]))
}

// TestMXFP4NearTheLargest: finite numbers stay finite, and infinities and NaNs remain visible in
// the result.
func TestMXFP4NearTheLargest(t *testing.T) {
	for _, c := range []struct {
		dtype       safetensors.DType
		value, want float32
	}{
		{safetensors.F32, math.MaxFloat32, 6 * 0x1p125},
		{safetensors.F32, -math.MaxFloat32, -6 * 0x1p125},
		{safetensors.F32, 0x1p127, 4 * 0x1p125},
		{safetensors.F32, 0x1.8p127, 6 * 0x1p125},
		{safetensors.F32, 0x1.7p126, 6 * 0x1p124},
		{safetensors.BF16, 0x1.FEp127, 6 * 0x1p125},
		{safetensors.F16, 65504, 65536},
		{safetensors.F16, 57344, 65536},
		{safetensors.F16, 57312, 49152},
		{safetensors.F32, float32(math.Inf(1)), float32(math.NaN())},
		{safetensors.BF16, float32(math.Inf(-1)), float32(math.NaN())},
		{safetensors.F16, float32(math.NaN()), float32(math.NaN())},
	} {
		x := must(safetensors.NewTensor(c.dtype, []int{1, 32}, append([]float32{c.value}, make([]float32, 31)...)))
		q, config := quantized(t, map[string]safetensors.Tensor{"a.weight": x}, quant.MXFP4)
		plain := dequantized(t, q, config)
		requireSame(t, []float32{c.want}, elements[float32](t, plain["a.weight"])[:1], x.String())
	}
}

// TestModels quantises a small model and dequantises it again. transformers, with
// compressed-tensors, loads the results: see testdata/models.py.
func TestModels(t *testing.T) {
	python := os.Getenv("SAFETENSORS_QUANT_PYTHON")
	if python == "" {
		t.Skip("SAFETENSORS_QUANT_PYTHON names no Python that has testdata/requirements.txt")
	}
	dir := t.TempDir()
	run := func(verb string) {
		out, err := exec.Command(python, "testdata/models.py", verb, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("make")
	base := filepath.Join(dir, "base")
	f := must(safetensors.Open(base))
	defer f.Close()
	text := must(os.ReadFile(filepath.Join(base, "config.json")))
	write := func(folder string, tensors map[string]safetensors.Tensor, more []byte) string {
		folder = filepath.Join(dir, folder)
		config := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &config))
		require.NoError(t, json.Unmarshal(more, &config))
		joined := must(json.Marshal(config))
		require.NoError(t, safetensors.WriteShards(folder, tensors, map[string]string{"format": "pt"}, 1<<40))
		require.NoError(t, os.WriteFile(filepath.Join(folder, "config.json"), joined, 0o666))
		return folder
	}
	for _, scheme := range schemes {
		tensors, config := quantized(t, maps.Collect(f.Tensors()), scheme)
		q := must(quant.Open(write("ours-"+string(scheme), tensors, config)))
		plain := maps.Collect(q.Tensors())
		for name, x := range plain {
			plain[name] = must(x.Convert(safetensors.BF16))
		}
		write("back-"+string(scheme), plain, []byte("{}"))
		require.NoError(t, q.Close())
	}
	run("compare")
}

// TestFusedExperts: weights with three dimensions stay unchanged, and ignore contains their modules
// and parameters. If Targets selects one, the error gives the reason.
func TestFusedExperts(t *testing.T) {
	m := checkpoint(
		zeroed("l.0.mlp.experts.gate_up_proj", safetensors.BF16, 2, 128, 128), zeroed("l.0.moe.input_linear.weight", safetensors.F32, 2, 4, 128),
		zeroed("l.0.q_proj.weight", safetensors.BF16, 128, 128), zeroed("l.0.conv1d.weight", safetensors.BF16, 8, 4, 4), zeroed("l.0.depth.weight", safetensors.BF16, 8, 1, 4),
		zeroed("pos_embed", safetensors.BF16, 1, 4, 8),
	)
	for _, scheme := range schemes {
		q, text := quantized(t, m, scheme)
		require.Equal(t, m["l.0.mlp.experts.gate_up_proj"], q["l.0.mlp.experts.gate_up_proj"])
		var config struct {
			Section struct{ Ignore []string } `json:"quantization_config"`
		}
		require.NoError(t, json.Unmarshal(text, &config))
		require.Equal(t, []string{"l.0.mlp.experts", "l.0.mlp.experts.gate_up_proj", "l.0.moe.input_linear", "lm_head"}, config.Section.Ignore)
		for _, name := range []string{"l.0.mlp.experts.gate_up_proj", "l.0.moe.input_linear.weight"} {
			_, _, err := quant.Quantize(m, quant.Recipe{Scheme: scheme, Targets: func(n string, _ safetensors.Tensor) bool { return n == name }})
			require.ErrorContains(t, err, "holds several matrices, such as those of fused experts, but the layouts of compressed-tensors have one for each module")
			require.ErrorContains(t, err, name)
		}
	}
}

// TestJoinExperts: the experts of a dequantised Llama 4 are those of the model before Quantize, as one tensor for gate and
// up and one for down, whatever the layout, and Layouts has them. The experts of another model, of a part of a layer, and
// of a layer in which nothing was quantised, stay apart.
func TestJoinExperts(t *testing.T) {
	const experts, inputs, hidden = 2, 256, 128
	start := "language_model.model.layers.1.feed_forward.experts."
	m := newMaker()
	m.floats(start+"gate_up_proj", safetensors.BF16, experts, inputs, 2*hidden)
	m.floats(start+"down_proj", safetensors.BF16, experts, hidden, inputs)
	m.floats("language_model.model.layers.1.self_attn.q_proj.weight", safetensors.BF16, 128, 128)
	model := func(config []byte, name string) []byte {
		return append([]byte(`{"text_config":{"model_type":"`+name+`"},`), config[1:]...)
	}
	numbers := func(tensor safetensors.Tensor) []float32 {
		t.Helper()
		all, err := safetensors.Append[float32](nil, tensor)
		require.NoError(t, err)
		return all
	}
	for _, scheme := range schemes {
		q, config := quantized(t, m.tensors, scheme)
		whole, err := quant.Dequantize(q, model(config, "llama4_text"))
		require.NoError(t, err)
		require.ElementsMatch(t, slices.Collect(maps.Keys(m.tensors)), slices.Collect(maps.Keys(whole)), scheme)
		apart, err := quant.Dequantize(q, model(config, "jamba"))
		require.NoError(t, err)
		require.Len(t, apart, 1+3*experts)
		both, down := numbers(whole[start+"gate_up_proj"]), numbers(whole[start+"down_proj"])
		require.Equal(t, []int{experts, inputs, 2 * hidden}, whole[start+"gate_up_proj"].Shape())
		require.Equal(t, []int{experts, hidden, inputs}, whole[start+"down_proj"].Shape())
		for e := range experts {
			gate := numbers(apart[fmt.Sprintf("%s%d.gate_proj.weight", start, e)])
			up := numbers(apart[fmt.Sprintf("%s%d.up_proj.weight", start, e)])
			one := numbers(apart[fmt.Sprintf("%s%d.down_proj.weight", start, e)])
			for r := range hidden {
				for c := range inputs {
					require.Equal(t, gate[r*inputs+c], both[(e*inputs+c)*2*hidden+r])
					require.Equal(t, up[r*inputs+c], both[(e*inputs+c)*2*hidden+hidden+r])
					require.Equal(t, one[c*hidden+r], down[(e*hidden+r)*inputs+c])
				}
			}
		}
		layouts, err := quant.Layouts(q, model(config, "llama4"))
		require.NoError(t, err)
		for name := range q {
			require.Contains(t, layouts, name, "%s: it is stored, and no tensor stays", scheme)
		}
		for name := range whole {
			require.Equal(t, "compressed-tensors", layouts[name].Method, name)
		}
		for name := range layouts {
			require.True(t, q[name].DType() != 0 || whole[name].DType() != 0, "%s: %s is neither stored nor a result", scheme, name)
		}
	}

	q, config, err := quant.Quantize(m.tensors, quant.Recipe{Scheme: quant.FP8Channel, Targets: func(name string, _ safetensors.Tensor) bool {
		return strings.HasSuffix(name, "1.up_proj.weight")
	}})
	require.NoError(t, err)
	config = model(config, "llama4")
	one := func(changes ...change) map[string]safetensors.Tensor {
		changed := maps.Clone(q)
		for _, c := range changes {
			c(changed)
		}
		return changed
	}
	whole, err := quant.Dequantize(q, config)
	require.NoError(t, err)
	require.Len(t, whole, 3, "one of them was quantised")
	require.Equal(t, numbers(m.tensors[start+"down_proj"]), numbers(whole[start+"down_proj"]))
	layouts, err := quant.Layouts(q, config)
	require.NoError(t, err)
	require.Contains(t, layouts, start+"0.down_proj.weight", "it is stored, and not in the result")

	// A shard may have all matrices of the first experts: the config specifies how many there are.
	for n, want := range map[int]int{experts: 3, experts + 1: 1 + 3*experts} {
		more := bytes.Replace(config, []byte(`"llama4"`), fmt.Appendf(nil, `"llama4","num_local_experts":%d`, n), 1)
		whole, err := quant.Dequantize(q, more)
		require.NoError(t, err)
		require.Len(t, whole, want)
		layouts, err := quant.Layouts(q, more)
		require.NoError(t, err)
		require.Equal(t, n == experts, layouts[start+"down_proj"].Bits > 0)
	}

	for _, changed := range []map[string]safetensors.Tensor{
		one(without(start + "0.down_proj.weight")),
		one(without(start+"0.down_proj.weight"), without(start+"0.gate_proj.weight"), without(start+"0.up_proj.weight")),
	} {
		apart, err := quant.Dequantize(changed, config)
		require.NoError(t, err)
		require.Len(t, apart, len(changed)-1, "they stay apart, without the scale")
		layouts, err := quant.Layouts(changed, config)
		require.NoError(t, err)
		require.NotContains(t, layouts, start+"down_proj")
	}
	_, err = quant.Dequantize(one(func(tensors map[string]safetensors.Tensor) {
		tensors[start+"1.down_proj.weight"] = must(tensors[start+"1.down_proj.weight"].Reshape(hidden, inputs))
	}), config)
	require.EqualError(t, err, `safetensors: tensor "language_model.model.layers.1.feed_forward.experts.1.down_proj.weight": its shape is [128,256], and that of "language_model.model.layers.1.feed_forward.experts.0.down_proj.weight", with which it is joined, is [256,128]`)
}
