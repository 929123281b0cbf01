package quant_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// A twin is a random tensor of some layout, together with a func that computes its elements one by
// one, as the layout defines them.
type twin struct {
	title   string
	tensors map[string]safetensors.Tensor
	config  string
	name    string
	shape   []int
	at      func(i []int) float32
}

// matrix makes the twin a matrix. at returns its elements.
func (w *twin) matrix(rows, columns int, at func(row, column int) float32) {
	w.shape = []int{rows, columns}
	w.at = func(x []int) float32 { return at(x[0], x[1]) }
}

// A twinMaker makes twins, and collects them.
type twinMaker struct {
	*rand.Rand
	all   []twin
	times int   // factor by which one size of each twin is multiplied
	large int   // index of that size
	block []int // numbers of rows and columns of the blocks of all twins
}

func (t *twinMaker) add(title string, make func(m maker, w *twin)) {
	w := twin{title: title, name: "a.weight", tensors: map[string]safetensors.Tensor{}}
	t.large = t.IntN(2)
	make(maker{t.Rand, w.tensors}, &w)
	t.all = append(t.all, w)
}

func (t *twinMaker) size(n int) int {
	if t.large--; t.large == -1 {
		n *= t.times
	}
	return 1 + t.IntN(n)
}

// twins returns twins of every layout.
func twins(seed uint64) []twin { return twinsOf(seed, 1) }

// twinsOf is like twins, but multiplies one size of each twin by times.
func twinsOf(seed uint64, times int) []twin {
	t := &twinMaker{Rand: rand.New(rand.NewPCG(seed, 1)), times: times}
	t.block = []int{1 + t.IntN(20), 1 + t.IntN(20)}
	t.floats()
	t.integers()
	t.words()
	t.comfy()
	t.bitsAndBytes()
	return t.all
}

// granularity returns the shape of the scales, and how many rows and columns share a scale.
func (t *twinMaker) granularity(strategy string, o, i int) (shape []int, height, length int) {
	switch strategy {
	case "channel":
		return []int{o, 1}, 1, i
	case "block":
		return []int{cdiv(o, t.block[0]), cdiv(i, t.block[1])}, t.block[0], t.block[1]
	case "block of 128":
		return []int{cdiv(o, 128), cdiv(i, 128)}, 128, 128
	case "group":
		return []int{o, i / 32}, 1, 32
	case "tensor":
		return []int{1}, o, i
	}
	return nil, o, i
}

// A product describes a layout in which values, of 8 bits or of E2M1, are multiplied by scales. It
// also has a scale of its inputs, which Dequantize leaves out.
type product struct {
	title, config, strategy string
	values                  string
	dtype                   safetensors.DType
	bits                    int
	scales                  string
	power                   safetensors.DType
	inputs                  string
}

func (p product) make(t *twinMaker, m maker, w *twin) {
	o, i := t.size(70), t.size(70)
	if p.strategy == "group" {
		i = 32 * cdiv(i, 16)
	}
	if p.inputs != "" {
		m.floats("a."+p.inputs, safetensors.F32)
	}
	shape, h, l := t.granularity(p.strategy, o, i)
	q, s := m.values("a."+p.values, p.dtype, p.bits, i, o), m.grid("a."+p.scales, p.power, shape...)
	w.matrix(o, i, func(r, c int) float32 { return q(r, c) * s(r/h, c/l) })
}

func (t *twinMaker) floats() {
	deepSeek := func(block any) string { return method("fp8", object{"weight_block_size": block}) }
	llm := func(format string, bits int, kind, strategy string) string {
		return compressedConfig(format, object{"num_bits": bits, "type": kind, "strategy": strategy, "block_structure": t.block, "group_size": 32})
	}
	const f32, bf16, u8, i8, e4m3, e8m0 = safetensors.F32, safetensors.BF16, safetensors.U8, safetensors.I8, safetensors.F8_E4M3, safetensors.F8_E8M0
	fbgemm := method("fbgemm_fp8", object{"activation_scale_ub": 1200.0})
	for _, p := range []product{
		{"FP8 block F32", deepSeek(t.block), "block", "weight", e4m3, 8, "weight_scale_inv", f32, ""},
		{"FP8 block E8M0", deepSeek(t.block), "block", "weight", e4m3, 8, "weight_scale_inv", e8m0, ""},
		{"FP8 block U8", deepSeek(t.block), "block", "weight", e4m3, 8, "weight_scale_inv", u8, ""},
		{"FP8 whole", deepSeek(nil), "scalar", "weight", e4m3, 8, "weight_scale_inv", bf16, "activation_scale"},
		{"DeepSeek V4", deepSeek([]int{128, 128}), "block of 128", "weight", e4m3, 8, "scale", e8m0, ""},
		{"DeepSeek V4 expert", method("fp8", object{}), "group", "weight", i8, 4, "scale", e8m0, ""},
		{"MXFP4", llm("mxfp4-pack-quantized", 4, "float", "group"), "group", "weight_packed", u8, 4, "weight_scale", u8, ""},
		{"MXFP8", llm("mxfp8-quantized", 8, "float", "group"), "group", "weight", e4m3, 8, "weight_scale", u8, ""},
		{"MXFP8 of ModelOpt", method("modelopt", object{"quant_algo": "MXFP8", "group_size": 32}), "group", "weight", e4m3, 8, "weight_scale", u8, "input_scale"},
		{"MXFP8 by another name of its scales", method("mxfp8", object{}), "group", "weight", e4m3, 8, "weight_scale", e8m0, ""},
		{"FP8 channel", llm("float-quantized", 8, "float", "channel"), "channel", "weight", e4m3, 8, "weight_scale", bf16, "input_scale"},
		{"FP8 tensor", llm("float-quantized", 8, "float", "tensor"), "tensor", "weight", e4m3, 8, "weight_scale", bf16, "input_scale"},
		{"FP8 block", llm("float-quantized", 8, "float", "block"), "block", "weight", e4m3, 8, "weight_scale", bf16, "input_scale"},
		{"FP8 scalar", method("fp8", object{"activation_scheme": "static"}), "scalar", "weight", e4m3, 8, "weight_scale", bf16, "input_scale"},
		{"FP8 fbgemm", fbgemm, "channel", "weight", e4m3, 8, "weight_scale", bf16, "input_scale_ub"},
		{"INT8", llm("int-quantized", 8, "int", "channel"), "channel", "weight", i8, 8, "weight_scale", bf16, ""},
	} {
		t.add(p.title, func(m maker, w *twin) {
			w.config = p.config
			p.make(t, m, w)
		})
	}
	for _, kind := range []string{"blocks", "whole", "halves", "mxfp8", "fp4"} {
		t.add("FP8 experts "+kind, func(m maker, w *twin) {
			e, o, i, h, l := 1+t.IntN(3), 2*t.size(20), 32*t.size(3), t.size(20), t.size(20)
			w.name = "a.gate_up_proj"
			d, bits := safetensors.F8_E4M3, 8
			switch kind {
			case "blocks":
				w.config = method("fp8", object{"weight_block_size": []int{h, l}})
			case "whole", "halves":
				w.config, h, l = method("fp8", object{"weight_block_size": nil}), o, i
				if kind == "halves" {
					h = o / 2
				}
				m.floats("a.gate_up_proj_activation_scale", safetensors.F32, e)
			case "mxfp8":
				w.config, h, l = method("mxfp8", object{}), 1, 32
			case "fp4":
				w.config, h, l, d, bits = method("fp8", object{"expert_dtype": "fp4"}), 1, 32, safetensors.I8, 4
			}
			q, s := m.values(w.name, d, bits, i, e, o), m.grid(w.name+"_scale_inv", safetensors.U8, e, cdiv(o, h), cdiv(i, l))
			w.shape = []int{e, o, i}
			w.at = func(x []int) float32 { return q(x[0]*o+x[1], x[2]) * s(x[0]*cdiv(o, h)+x[1]/h, x[2]/l) }
		})
	}
	for _, stem := range []string{"a.gate_up_proj", "a.weight"} {
		t.add("MXFP8 experts of ModelOpt, "+stem, func(m maker, w *twin) {
			e, o, i := t.size(3), t.size(20), 32*t.size(3)
			w.name = stem
			w.config = text(object{"quantization": object{"quant_algo": "MIXED_PRECISION", "quantized_layers": object{"a": object{"quant_algo": "MXFP8", "group_size": 32}}}})
			scales := "a.gate_up_proj_weight_scale"
			if stem == "a.weight" {
				scales = "a.weight_scale"
			}
			q, s := m.values(stem, e4m3, 8, i, e, o), m.grid(scales, u8, e, o, i/32)
			w.shape = []int{e, o, i}
			w.at = func(x []int) float32 { return q(x[0]*o+x[1], x[2]) * s(x[0]*o+x[1], x[2]/32) }
		})
	}
	t.add("NVFP4", func(m maker, w *twin) {
		o, i := t.size(20), 16*t.size(6)
		w.config = compressedConfig("nvfp4-pack-quantized", object{"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})
		q, s, g := m.codes("a.weight_packed", safetensors.U8, 4, e2m1, i, o), m.grid("a.weight_scale", safetensors.F8_E4M3, o, i/16), m.grid("a.weight_global_scale", safetensors.F32, 1)
		w.matrix(o, i, func(r, c int) float32 { return q(r, c) * float32(s(r, c/16)/g(0, 0)) })
	})
	t.add("NVFP4 of ModelOpt", func(m maker, w *twin) {
		o, i := t.size(20), 16*t.size(6)
		w.config = text(object{"quantization": object{"quant_algo": "NVFP4", "group_size": 16}})
		q, s, g := m.codes("a.weight", safetensors.U8, 4, e2m1, i, o), m.grid("a.weight_scale", safetensors.F8_E4M3, o, i/16), m.grid("a.weight_scale_2", safetensors.F32)
		w.matrix(o, i, func(r, c int) float32 { return q(r, c) * float32(s(r, c/16)*g(0, 0)) })
	})
	t.add("gpt-oss", func(m maker, w *twin) {
		e, rows, i := t.size(3), t.size(40), 32*t.size(4)
		w.config, w.name = method("mxfp4", object{}), "a.gate_up_proj"
		q, s := m.codes(w.name+"_blocks", safetensors.U8, 4, e2m1, 32, e, rows, i/32), m.grid(w.name+"_scales", safetensors.U8, e, rows, i/32)
		w.shape = []int{e, i, rows}
		w.at = func(x []int) float32 {
			line := x[0]*rows + x[2]
			return q(line*i/32+x[1]/32, x[1]%32) * s(line, x[1]/32)
		}
	})
}

func (t *twinMaker) integers() {
	for _, c := range []struct {
		strategy string
		words    bool
	}{{"channel", false}, {"tensor", false}, {"tensor", true}, {"block", false}, {"block", true}} {
		t.add(fmt.Sprint("asymmetric by ", c.strategy, c.words), func(m maker, w *twin) {
			o, i := t.size(50), 4*t.size(12)
			weights := object{"num_bits": 8, "type": "int", "strategy": c.strategy, "block_structure": t.block, "symmetric": false}
			shape, h, l := t.granularity(c.strategy, o, i)
			var q grid
			if c.words {
				w.config = compressedConfig("pack-quantized", weights)
				q = m.codes("a.weight_packed", safetensors.I32, 8, offset(8), i, o)
				m.dimensions("a.weight_shape", o, i)
			} else {
				w.config = compressedConfig("int-quantized", weights)
				q = m.grid("a.weight", safetensors.I8, o, i)
			}
			s, z := m.grid("a.weight_scale", safetensors.BF16, shape...), m.grid("a.weight_zero_point", safetensors.I8, shape...)
			w.matrix(o, i, func(r, c int) float32 { return (q(r, c) - z(r/h, c/l)) * s(r/h, c/l) })
		})
	}
	for bits := 1; bits <= 8; bits++ {
		for _, kind := range []string{"symmetric", "symmetric, index of -1", "asymmetric", "asymmetric, index"} {
			t.add(fmt.Sprint("packed ", bits, kind), func(m maker, w *twin) {
				size := t.size(40)
				o, i := t.size(70), size*t.size(5)
				weights := object{"num_bits": bits, "type": "int", "strategy": "group", "group_size": size, "symmetric": kind[0] == 's'}
				q, s := m.codes("a.weight_packed", safetensors.I32, bits, offset(bits), i, o), m.grid("a.weight_scale", safetensors.F16, o, i/size)
				m.dimensions("a.weight_shape", o, i)
				z, group := grid(func(int, int) float32 { return 0 }), func(c int) int { return c / size }
				if kind[0] == 'a' {
					z = m.down("a.weight_zero_point", bits, offset(bits), o, i/size)
				}
				switch kind {
				case "asymmetric, index":
					weights["actorder"], group = "group", m.index("a.weight_g_idx", i, i/size)
				case "symmetric, index of -1": // an index whose elements are all -1 counts as absent
					weights["actorder"] = "group"
					numbers("a.weight_g_idx", slices.Repeat([]int32{-1}, i)...)(w.tensors)
				}
				w.config = compressedConfig("pack-quantized", weights)
				w.matrix(o, i, func(r, c int) float32 { return (q(r, c) - z(r, group(c))) * s(r, group(c)) })
			})
		}
	}
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		t.add(fmt.Sprint("MLX ", bits), func(m maker, w *twin) {
			group := 32 * t.size(2)
			o, i := t.size(20), group*t.size(3)
			w.config = text(object{"quantization": object{"bits": bits, "group_size": group}})
			q, s, b := m.codes("a.weight", safetensors.U32, bits, unsigned, i, o), m.grid("a.scales", safetensors.BF16, o, i/group), m.grid("a.biases", safetensors.BF16, o, i/group)
			w.matrix(o, i, func(r, c int) float32 { return float32(q(r, c)*s(r, c/group)) + b(r, c/group) })
		})
	}
}

// words adds twins of the layouts of GPTQ and AWQ, whose lines are columns of the result.
func (t *twinMaker) words() {
	for _, bits := range []int{2, 3, 4, 8} {
		for _, version := range []string{"gptq", "gptq_v2", "auto_round:auto_gptq", "auto_round", "dynamic gptq"} {
			t.add(fmt.Sprint("GPTQ ", bits, version), func(m maker, w *twin) {
				group := t.size(60)
				o, i := 32*t.size(3), 32*t.size(4)
				groups, indexed := cdiv(i, group), bits == 3 || bits == 4
				own := object{"bits": bits, "group_size": group}
				switch version {
				case "gptq", "gptq_v2":
					w.config = method("gptq", object{"bits": bits, "group_size": group, "checkpoint_format": version, "desc_act": indexed})
				case "dynamic gptq":
					w.config = fmt.Sprintf(`{"quantization_config":{"quant_method":"gptq","bits":5,"group_size":-1,"desc_act":%v,
						"dynamic":{"-:b":{},"+:^a$":%s,"a":{"bits":2}}}}`, indexed, text(own))
				default:
					w.config = method("auto-round", object{"bits": 5, "group_size": 7, "desc_act": indexed, "packing_format": version, "extra_config": object{"a": own}})
				}
				zero := unsigned
				if strings.HasSuffix(version, "gptq") {
					zero = func(code int) float32 { return float32((code + 1) & (1<<bits - 1)) }
				}
				q, z, s := m.down("a.qweight", bits, unsigned, i, o), m.codes("a.qzeros", safetensors.I32, bits, zero, o, groups), m.grid("a.scales", safetensors.F16, groups, o)
				of := func(c int) int { return c / group }
				if indexed {
					of = m.index("a.g_idx", i, groups)
				}
				w.matrix(o, i, func(r, c int) float32 { return (q(c, r) - z(of(c), r)) * s(of(c), r) })
			})
		}
	}
	for _, title := range []string{"AWQ", "AutoRound"} {
		t.add(title, func(m maker, w *twin) {
			group := t.size(30)
			o, i := 8*t.size(6), group*t.size(4)
			w.config = method("awq", object{"version": "gemm", "bits": 4, "group_size": group, "zero_point": true})
			if title == "AutoRound" {
				w.config = method("auto-round", object{"bits": 4, "group_size": group, "packing_format": "auto_round:auto_awq", "data_type": "int", "act_bits": 16})
			}
			q, z, s := m.codes("a.qweight", safetensors.I32, 4, unsigned, o, i), m.codes("a.qzeros", safetensors.I32, 4, unsigned, o, i/group), m.grid("a.scales", safetensors.F16, i/group, o)
			nibble := func(row int) int { return row/8*8 + []int{0, 4, 1, 5, 2, 6, 3, 7}[row%8] }
			w.matrix(o, i, func(r, c int) float32 { return (q(c, nibble(r)) - z(c/group, nibble(r))) * s(c/group, r) })
		})
	}
}

func (t *twinMaker) comfy() {
	add := func(title, format string, make func(m maker, w *twin)) {
		t.add("ComfyUI "+title, func(m maker, w *twin) {
			w.config = "{}"
			if format != "" {
				marker := text(object{"format": format, "full_precision_matrix_mult": true, "convrot": false})
				m.put("a.comfy_quant", safetensors.U8, []byte(marker), len(marker))
			}
			make(m, w)
		})
	}
	for _, p := range []product{ // config is the format
		{"FP8", "float8_e4m3fn", "scalar", "weight", safetensors.F8_E4M3, 8, "weight_scale", safetensors.F32, "input_scale"},
		{"E5M2", "float8_e5m2", "scalar", "weight", safetensors.F8_E5M2, 8, "weight_scale", safetensors.F32, "input_scale"},
		{"INT8", "int8_tensorwise", "scalar", "weight", safetensors.I8, 8, "weight_scale", safetensors.F32, "input_scale"},
		{"INT8 rows", "int8_tensorwise", "channel", "weight", safetensors.I8, 8, "weight_scale", safetensors.F32, "input_scale"},
		{"without markers", "", "scalar", "weight", safetensors.F8_E4M3, 8, "scale_weight", safetensors.F32, "scale_input"},
	} {
		add(p.title, p.config, func(m maker, w *twin) {
			if p.config == "" {
				m.put("scaled_fp8", safetensors.F8_E4M3, nil, 0)
			}
			p.make(t, m, w)
		})
	}
	// blocked returns the index at which the order of cuBLAS has the scale of row r and column c.
	blocked := func(r, c, columns int) int {
		return (r/128*cdiv(columns, 4)+c/4)*512 + r%32*16 + r%128/32*4 + c%4
	}
	add("NVFP4", "nvfp4", func(m maker, w *twin) {
		o, i := t.size(150), 64*t.size(5)
		q, g := m.codes("a.weight", safetensors.U8, 4, e2m1, i, o), m.grid("a.weight_scale_2", safetensors.F32)
		s := m.grid("a.weight_scale", safetensors.F8_E4M3, cdiv(o, 128)*128, cdiv(i/16, 4)*4)
		w.matrix(o, i, func(r, c int) float32 { return q(r, c^1) * float32(s(0, blocked(r, c/16, i/16))*g(0, 0)) })
	})
	add("MXFP8", "mxfp8", func(m maker, w *twin) {
		o, i := t.size(150), 64*t.size(5)
		q, s := m.grid("a.weight", safetensors.F8_E4M3, o, i), m.grid("a.weight_scale", safetensors.U8, cdiv(o, 128)*128, cdiv(i/32, 4)*4)
		w.matrix(o, i, func(r, c int) float32 { return q(r, c) * s(0, blocked(r, c/32, i/32)) })
	})
}

func (t *twinMaker) bitsAndBytes() {
	for _, c := range []struct {
		kind   string
		nested bool
	}{{"nf4", false}, {"nf4", true}, {"fp4", false}} {
		nested := c.nested
		t.add(fmt.Sprint(strings.ToUpper(c.kind), " nested ", nested), func(m maker, w *twin) {
			o, i, block, outer := t.size(20), t.size(60), t.size(40), t.size(5)
			w.config = method("bitsandbytes", object{"load_in_4bit": true})
			storage := safetensors.U8
			if nested { // the name is that of a parameter, and the dtype of the storage is another one
				w.name, storage = "a.gate_up_proj", []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32}[t.IntN(3)]
				o, i = 1, cdiv(o*i, 8)*8
			}
			n := o * i
			q, numbers := m.random(w.name, storage, cdiv(n, 2)*8/storage.Bits(), 1), m.grid(w.name+".quant_map", safetensors.F32, 16)
			state := object{"quant_type": c.kind, "blocksize": block, "dtype": "bfloat16", "shape": []int{o, i}}
			var scale func(k int) float32
			if nested {
				state["nested_blocksize"], state["nested_offset"] = outer, 0.1
				c, nestedNumbers := m.random(w.name+".absmax", safetensors.U8, cdiv(n, block)), m.floats(w.name+".nested_quant_map", safetensors.F32, 256)
				s := m.floats(w.name+".nested_absmax", safetensors.F32, cdiv(cdiv(n, block), outer))
				scale = func(k int) float32 { return float32(nestedNumbers[c[k]]*s[k/outer]) + float32(0.1) }
			} else {
				s := m.floats(w.name+".absmax", safetensors.F32, cdiv(n, block))
				scale = func(k int) float32 { return s[k] }
			}
			json := []byte(text(state))
			m.put(w.name+".quant_state.bitsandbytes__"+c.kind, safetensors.U8, json, len(json))
			w.matrix(o, i, func(r, c int) float32 {
				e := r*i + c
				return numbers(0, code(q, 4*(e^1), 4)) * scale(e/block)
			})
		})
	}
	t.add("INT8 SCB", func(m maker, w *twin) {
		o, i := t.size(20), t.size(20)
		w.config = method("bitsandbytes", object{"load_in_8bit": true})
		q, s := m.grid("a.weight", safetensors.I8, o, i), m.grid("a.SCB", safetensors.F32, o)
		m.put("a.weight_format", safetensors.U8, []byte{0})
		w.matrix(o, i, func(r, c int) float32 { return float32(q(r, c)*s(0, r)) * float32(0.007874015718698502) })
	})
}

// elements returns all elements of the twin, in row-major order.
func (w twin) elements() []float32 {
	v := make([]float32, size(safetensors.U8, w.shape...))
	for e := range v {
		v[e] = w.at(w.index(e))
	}
	return v
}

// index returns the indices of element e in the dimensions.
func (w twin) index(e int) []int {
	i := make([]int, len(w.shape))
	for d := len(i) - 1; d >= 0; d-- {
		i[d] = e % w.shape[d]
		e /= w.shape[d]
	}
	return i
}

func (w twin) dequantized(t testing.TB) safetensors.Tensor {
	t.Helper()
	plain := dequantized(t, w.tensors, w.config)
	require.Len(t, plain, 1)
	layouts := must(quant.Layouts(w.tensors, []byte(w.config)))
	require.Positive(t, layouts[w.name].Bits, w.title)
	for name := range w.tensors {
		require.Contains(t, layouts, name, w.title)
	}
	for name := range layouts {
		require.True(t, name == w.name || w.tensors[name].DType() != 0, "%s: %s", w.title, name)
	}
	require.Contains(t, plain, w.name)
	require.Equal(t, w.shape, plain[w.name].Shape())
	require.Equal(t, safetensors.F32, plain[w.name].DType())
	return plain[w.name]
}
