package bench

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors"
)

// A table lists the tensors of a file in the order of their data, of dtypes that every
// contestant knows.
type table []safetensors.TensorInfo

func (t *table) add(dtype safetensors.DType, name string, shape ...int) {
	*t = append(*t, safetensors.TensorInfo{Name: name, DType: dtype, Shape: shape})
}

// header returns the bytes of a file that precede its data, in the canonical form of the
// reference implementation, and the size of the data.
func (t table) header() (header []byte, dataSize int64) {
	for _, x := range t {
		n := x.DType.Bits() / 8
		for _, dim := range x.Shape {
			n *= dim
		}
		dataSize += int64(n)
	}
	h := safetensors.Header{Metadata: map[string]string{"format": "pt"}, Tensors: t}
	return must(h.AppendBinary(nil)), dataSize
}

// sorted orders a table as the reference implementation does: wider dtypes
// first, then by name.
func (t table) sorted() table {
	slices.SortFunc(t, func(x, y safetensors.TensorInfo) int {
		return cmp.Or(y.DType.Bits()-x.DType.Bits(), strings.Compare(x.Name, y.Name))
	})
	return t
}

// llama has the tensors of a Llama model, as one file: 723 for the 80 layers of
// Llama-2-70b.
func llama(layers, dim, hidden, kv, vocabulary int) table {
	var t table
	add := func(name string, shape ...int) { t.add(safetensors.BF16, name+".weight", shape...) }
	add("model.embed_tokens", vocabulary, dim)
	add("lm_head", vocabulary, dim)
	add("model.norm", dim)
	for i := range layers {
		layer := fmt.Sprintf("model.layers.%d.", i)
		add(layer+"input_layernorm", dim)
		add(layer+"post_attention_layernorm", dim)
		add(layer+"mlp.gate_proj", hidden, dim)
		add(layer+"mlp.up_proj", hidden, dim)
		add(layer+"mlp.down_proj", dim, hidden)
		add(layer+"self_attn.q_proj", dim, dim)
		add(layer+"self_attn.k_proj", kv, dim)
		add(layer+"self_attn.v_proj", kv, dim)
		add(layer+"self_attn.o_proj", dim, dim)
	}
	return t.sorted()
}

// deepSeekV3 has the 91,991 tensors of DeepSeek-V3, as one file, if given its
// 256 experts. The weights are BF16 where the model has F8_E4M3, which not
// every contestant knows.
func deepSeekV3(experts int) table {
	const dim, denseLayers, layers = 7168, 3, 61
	var t table
	plain := func(name string, shape ...int) { t.add(safetensors.BF16, name+".weight", shape...) }
	scaled := func(name string, out, in int) {
		plain(name, out, in)
		t.add(safetensors.F32, name+".weight_scale_inv", (out+127)/128, (in+127)/128)
	}
	mlp := func(name string, hidden int) {
		scaled(name+".gate_proj", hidden, dim)
		scaled(name+".up_proj", hidden, dim)
		scaled(name+".down_proj", dim, hidden)
	}
	for i := range layers + 1 { // the last predicts a second token
		layer := fmt.Sprintf("model.layers.%d.", i)
		scaled(layer+"self_attn.q_a_proj", 1536, dim)
		scaled(layer+"self_attn.q_b_proj", 24576, 1536)
		scaled(layer+"self_attn.kv_a_proj_with_mqa", 576, dim)
		scaled(layer+"self_attn.kv_b_proj", 32768, 512)
		scaled(layer+"self_attn.o_proj", dim, 16384)
		plain(layer+"self_attn.q_a_layernorm", 1536)
		plain(layer+"self_attn.kv_a_layernorm", 512)
		plain(layer+"input_layernorm", dim)
		plain(layer+"post_attention_layernorm", dim)
		if i < denseLayers {
			mlp(layer+"mlp", 18432)
			continue
		}
		plain(layer+"mlp.gate", 256, dim)
		t.add(safetensors.F32, layer+"mlp.gate.e_score_correction_bias", 256)
		mlp(layer+"mlp.shared_experts", 2048)
		for e := range experts {
			mlp(fmt.Sprintf("%smlp.experts.%d", layer, e), 2048)
		}
	}
	last := fmt.Sprintf("model.layers.%d.", layers)
	plain(last+"eh_proj", dim, 2*dim)
	for _, name := range []string{last + "enorm", last + "hnorm", last + "shared_head.norm", "model.norm"} {
		plain(name, dim)
	}
	for _, name := range []string{last + "embed_tokens", last + "shared_head.head", "model.embed_tokens", "lm_head"} {
		plain(name, 129280, dim)
	}
	return t.sorted()
}

// numbered has n tensors of one dtype and shape.
func numbered(n int, name func(i int) string, dtype safetensors.DType, shape ...int) (t table) {
	for i := range n {
		t.add(dtype, name(i), shape...)
	}
	return t
}

// manyExperts has n tensors. With a million, its header is just below the
// 100,000,000 bytes that the format allows.
func manyExperts(n int) table {
	name := func(i int) string { return fmt.Sprintf("layers.%d.experts.%d.w%d", i/10000, i/4%2500, i%4+1) }
	return numbered(n, name, safetensors.BF16, 32, 64).sorted()
}

// uniform has tensors named w.0, w.1, … of shape [rows, 4096] and dtype BF16,
// dataSize bytes in total, and a small one called norm.
func uniform(tensors int, dataSize int64) table {
	const columns = 4096
	rows := int(dataSize / 2 / columns / int64(tensors))
	t := numbered(tensors, func(i int) string { return fmt.Sprintf("w.%d", i) }, safetensors.BF16, rows, columns)
	t.add(safetensors.BF16, "norm", columns)
	return t.sorted()
}

// mostTensors has n tensors without elements. With 1,816,000, as many as fit,
// its header is just below 100,000,000 bytes.
func mostTensors(n int) table {
	return numbered(n, func(i int) string { return strconv.FormatInt(int64(i), 36) }, safetensors.U8, 0)
}

// ignoredField has one tensor with an unknown field of n zeros.
func ignoredField(n int) (header []byte) {
	zeros := strings.Repeat(",0", n-1)
	b := fmt.Appendf(make([]byte, 8), `{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":[0%s]}}`, zeros)
	b = append(b, strings.Repeat(" ", -len(b)&7)...)
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b
}
