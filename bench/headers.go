package bench

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// An entry is one tensor of a header. The inputs are made here and not by the
// package that is measured.
type entry struct {
	name  string
	dtype string
	shape []int
}

// A table is the tensors of a file in the order of their data.
type table []entry

func (t *table) add(dtype string, shape []int, format string, args ...any) {
	*t = append(*t, entry{fmt.Sprintf(format, args...), dtype, shape})
}

// elementSize has the dtypes that every contestant knows.
var elementSize = map[string]int{"F32": 4, "BF16": 2, "F16": 2, "U8": 1}

func (e entry) bytes() int64 {
	n := int64(elementSize[e.dtype])
	for _, dim := range e.shape {
		n *= int64(dim)
	}
	return n
}

// header returns the bytes of a file before its data, in the canonical form
// of the reference implementation, and the size of the data.
func (t table) header() (header []byte, dataSize int64) {
	b := append(make([]byte, 8), `{"__metadata__":{"format":"pt"}`...)
	for _, e := range t {
		b = append(b, `,"`...)
		b = append(b, e.name...)
		b = append(b, `":{"dtype":"`...)
		b = append(b, e.dtype...)
		b = append(b, `","shape":[`...)
		for i, dim := range e.shape {
			if i > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendInt(b, int64(dim), 10)
		}
		b = append(b, `],"data_offsets":[`...)
		b = strconv.AppendInt(b, dataSize, 10)
		dataSize += e.bytes()
		b = append(b, ',')
		b = strconv.AppendInt(b, dataSize, 10)
		b = append(b, `]}`...)
	}
	return seal(append(b, '}')), dataSize
}

// seal pads a header, for whose length the first 8 bytes are left free.
func seal(b []byte) []byte {
	for len(b)%8 != 0 {
		b = append(b, ' ')
	}
	binary.LittleEndian.PutUint64(b, uint64(len(b)-8))
	return b
}

// sorted puts a table into the order in which the reference implementation
// writes: wider dtypes first, then by name.
func (t table) sorted() table {
	slices.SortFunc(t, func(x, y entry) int {
		if d := elementSize[y.dtype] - elementSize[x.dtype]; d != 0 {
			return d
		}
		return strings.Compare(x.name, y.name)
	})
	return t
}

// gpt2 has the 160 tensors of openai-community/gpt2.
func gpt2() table {
	var t table
	t.add("F32", []int{50257, 768}, "wte.weight")
	t.add("F32", []int{1024, 768}, "wpe.weight")
	for i := range 12 {
		t.add("F32", []int{1, 1, 1024, 1024}, "h.%d.attn.bias", i)
		for _, norm := range []string{"ln_1", "ln_2"} {
			t.add("F32", []int{768}, "h.%d.%s.weight", i, norm)
			t.add("F32", []int{768}, "h.%d.%s.bias", i, norm)
		}
		for _, linear := range []struct {
			name    string
			in, out int
		}{{"attn.c_attn", 768, 2304}, {"attn.c_proj", 768, 768}, {"mlp.c_fc", 768, 3072}, {"mlp.c_proj", 3072, 768}} {
			t.add("F32", []int{linear.in, linear.out}, "h.%d.%s.weight", i, linear.name)
			t.add("F32", []int{linear.out}, "h.%d.%s.bias", i, linear.name)
		}
	}
	t.add("F32", []int{768}, "ln_f.weight")
	t.add("F32", []int{768}, "ln_f.bias")
	return t.sorted()
}

// llama70B has the 723 tensors of Llama-2-70b, as one file.
func llama70B() table {
	const dim, hidden, vocabulary = 8192, 28672, 32000
	var t table
	t.add("BF16", []int{vocabulary, dim}, "model.embed_tokens.weight")
	t.add("BF16", []int{vocabulary, dim}, "lm_head.weight")
	t.add("BF16", []int{dim}, "model.norm.weight")
	for i := range 80 {
		layer := "model.layers." + strconv.Itoa(i)
		t.add("BF16", []int{dim}, "%s.input_layernorm.weight", layer)
		t.add("BF16", []int{dim}, "%s.post_attention_layernorm.weight", layer)
		t.add("BF16", []int{hidden, dim}, "%s.mlp.gate_proj.weight", layer)
		t.add("BF16", []int{hidden, dim}, "%s.mlp.up_proj.weight", layer)
		t.add("BF16", []int{dim, hidden}, "%s.mlp.down_proj.weight", layer)
		t.add("BF16", []int{dim, dim}, "%s.self_attn.q_proj.weight", layer)
		t.add("BF16", []int{1024, dim}, "%s.self_attn.k_proj.weight", layer)
		t.add("BF16", []int{1024, dim}, "%s.self_attn.v_proj.weight", layer)
		t.add("BF16", []int{dim, dim}, "%s.self_attn.o_proj.weight", layer)
	}
	return t.sorted()
}

// deepSeekV3 has the 91,991 tensors of DeepSeek-V3, as one file, with the
// experts of the real model cut to fewer in Quick. The weights are BF16 where
// the model has F8_E4M3, a dtype that not every contestant knows.
func deepSeekV3(experts int) table {
	const dim, denseLayers, layers = 7168, 3, 61
	var t table
	scaled := func(name string, out, in int) {
		t.add("BF16", []int{out, in}, "%s.weight", name)
		t.add("F32", []int{(out + 127) / 128, (in + 127) / 128}, "%s.weight_scale_inv", name)
	}
	mlp := func(name string, hidden int) {
		scaled(name+".gate_proj", hidden, dim)
		scaled(name+".up_proj", hidden, dim)
		scaled(name+".down_proj", dim, hidden)
	}
	norm := func(name string, n int) { t.add("BF16", []int{n}, "%s.weight", name) }

	for i := range layers + 1 { // the last predicts a second token
		layer := "model.layers." + strconv.Itoa(i)
		scaled(layer+".self_attn.q_a_proj", 1536, dim)
		scaled(layer+".self_attn.q_b_proj", 24576, 1536)
		scaled(layer+".self_attn.kv_a_proj_with_mqa", 576, dim)
		scaled(layer+".self_attn.kv_b_proj", 32768, 512)
		scaled(layer+".self_attn.o_proj", dim, 16384)
		norm(layer+".self_attn.q_a_layernorm", 1536)
		norm(layer+".self_attn.kv_a_layernorm", 512)
		norm(layer+".input_layernorm", dim)
		norm(layer+".post_attention_layernorm", dim)
		if i < denseLayers {
			mlp(layer+".mlp", 18432)
			continue
		}
		t.add("BF16", []int{256, dim}, "%s.mlp.gate.weight", layer)
		t.add("F32", []int{256}, "%s.mlp.gate.e_score_correction_bias", layer)
		mlp(layer+".mlp.shared_experts", 2048)
		for e := range experts {
			mlp(fmt.Sprintf("%s.mlp.experts.%d", layer, e), 2048)
		}
	}
	last := "model.layers." + strconv.Itoa(layers)
	t.add("BF16", []int{dim, 2 * dim}, "%s.eh_proj.weight", last)
	norm(last+".enorm", dim)
	norm(last+".hnorm", dim)
	norm(last+".shared_head.norm", dim)
	for _, name := range []string{last + ".embed_tokens", last + ".shared_head.head", "model.embed_tokens", "lm_head"} {
		t.add("BF16", []int{129280, dim}, "%s.weight", name)
	}
	norm("model.norm", dim)
	return t.sorted()
}

// manyExperts has n tensors and, for a million, a header just below the
// 100,000,000 bytes that the format allows.
func manyExperts(n int) table {
	t := make(table, 0, n)
	shape := []int{32, 64}
	for i := range n {
		t.add("BF16", shape, "layers.%d.experts.%d.w%d", i/10000, i/4%2500, i%4+1)
	}
	return t.sorted()
}

// uniform has tensors named w.0, w.1, … of [rows, 4096] BF16, dataSize bytes
// together, and a small one called norm.
func uniform(tensors int, dataSize int64) table {
	const columns = 4096
	var t table
	t.add("BF16", []int{columns}, "norm")
	rows := int(dataSize / 2 / columns / int64(tensors))
	for i := range tensors {
		t.add("BF16", []int{rows, columns}, "w.%d", i)
	}
	return t.sorted()
}
