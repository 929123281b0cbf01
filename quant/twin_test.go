package quant_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/quant"
)

// A twin is a random tensor of some layout, and its elements one by one, as the row of
// the layout says.
type twin struct {
	title   string
	tensors map[string]safetensors.Tensor
	config  string
	name    string
	shape   []int
	at      func(i []int) float32
}

// twins returns one tensor of each layout.
func twins(seed uint64) []twin { return twinsOf(seed, 1) }

// twinsOf returns tensors of which one size is times as large.
func twinsOf(seed uint64, times int) []twin {
	r := rand.New(rand.NewPCG(seed, 1))
	var all []twin
	large := 0 // the size that is, by its number
	add := func(title string, make func(m maker, w *twin)) {
		w := twin{title: title, name: "a.weight", tensors: map[string]safetensors.Tensor{}}
		large = r.IntN(2)
		make(maker{r, w.tensors}, &w)
		all = append(all, w)
	}
	size := func(n int) int {
		if large--; large == -1 {
			n *= times
		}
		return 1 + r.IntN(n)
	}
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.F8_E8M0, safetensors.U8} {
		add(fmt.Sprint("FP8 block ", d), func(m maker, w *twin) {
			o, i, h, l := size(70), size(70), size(20), size(20)
			rows, columns := (o+h-1)/h, (i+l-1)/l
			w.config = method("fp8", object{"weight_block_size": []int{h, l}})
			q := m.random("a.weight", safetensors.F8_E4M3, o, i)
			var s func(g int) float32
			if d == safetensors.F32 {
				v := m.floats("a.weight_scale_inv", d, rows, columns)
				s = func(g int) float32 { return v[g] }
			} else {
				v := m.random("a.weight_scale_inv", d, rows, columns)
				s = func(g int) float32 { return slowE8M0(v[g]) }
			}
			w.shape = []int{o, i}
			w.at = func(x []int) float32 { return slowE4M3(q[x[0]*i+x[1]]) * s(x[0]/h*columns+x[1]/l) }
		})
	}
	add("FP8 whole", func(m maker, w *twin) {
		o, i := size(300), size(300)
		w.config = method("fp8", object{"weight_block_size": nil})
		m.floats("a.activation_scale", safetensors.BF16)
		q, s := m.random("a.weight", safetensors.F8_E4M3, o, i), m.floats("a.weight_scale_inv", safetensors.BF16)
		w.shape = []int{o, i}
		w.at = func(x []int) float32 { return slowE4M3(q[x[0]*i+x[1]]) * s[0] }
	})
	add("DeepSeek V4", func(m maker, w *twin) {
		o, i := size(300), size(300)
		w.config = method("fp8", object{"weight_block_size": []int{128, 128}})
		q, s := m.random("a.weight", safetensors.F8_E4M3, o, i), m.random("a.scale", safetensors.F8_E8M0, (o+127)/128, (i+127)/128)
		w.shape = []int{o, i}
		w.at = func(x []int) float32 {
			return slowE4M3(q[x[0]*i+x[1]]) * slowE8M0(s[x[0]/128*((i+127)/128)+x[1]/128])
		}
	})
	for _, c := range []struct {
		title, config, values string
		dtype                 safetensors.DType
		bits                  int
		scales                string
		power                 safetensors.DType
	}{
		{"DeepSeek V4 expert", method("fp8", object{}), "a.weight", safetensors.I8, 4, "a.scale", safetensors.F8_E8M0},
		{"MXFP4", compressedConfig("mxfp4-pack-quantized", object{"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}),
			"a.weight_packed", safetensors.U8, 4, "a.weight_scale", safetensors.U8},
		{"MXFP8", compressedConfig("mxfp8-quantized", object{"num_bits": 8, "type": "float", "strategy": "group", "group_size": 32}),
			"a.weight", safetensors.F8_E4M3, 8, "a.weight_scale", safetensors.U8},
	} {
		add(c.title, func(m maker, w *twin) {
			o, i := size(30), 32*size(4)
			w.config = c.config
			q, s := m.random(c.values, c.dtype, o, i*c.bits/8), m.random(c.scales, c.power, o, i/32)
			w.shape = []int{o, i}
			w.at = func(x []int) float32 {
				v := code(q, c.bits*(x[0]*i+x[1]), c.bits)
				return map[int]float32{4: slowE2M1(v), 8: slowE4M3(byte(v))}[c.bits] * slowE8M0(s[x[0]*(i/32)+x[1]/32])
			}
		})
	}
	for _, kind := range []string{"blocks", "whole", "halves", "mxfp8", "fp4"} {
		add("FP8 experts "+kind, func(m maker, w *twin) {
			e, o, i, h, l := 1+r.IntN(3), 2*size(20), 32*size(3), size(20), size(20)
			w.name = "a.gate_up_proj"
			w.config = method("fp8", object{"weight_block_size": []int{h, l}})
			switch kind {
			case "whole", "halves":
				w.config, h, l = method("fp8", object{"weight_block_size": nil}), o, i
				if kind == "halves" {
					h = o / 2
				}
				m.floats("a.gate_up_proj_activation_scale", safetensors.F32, e)
			case "mxfp8", "fp4":
				w.config, h, l = method("mxfp8", object{}), 1, 32
			}
			d, width := safetensors.F8_E4M3, i
			if kind == "fp4" {
				d, width = safetensors.I8, i/2
				w.config = method("fp8", object{"expert_dtype": "fp4"})
			}
			down, across := (o+h-1)/h, (i+l-1)/l
			q, s := m.random(w.name, d, e, o, width), m.random(w.name+"_scale_inv", safetensors.U8, e, down, across)
			w.shape = []int{e, o, i}
			w.at = func(x []int) float32 {
				n := (x[0]*o+x[1])*i + x[2]
				v := slowE2M1(code(q, 4*n, 4))
				if kind != "fp4" {
					v = slowE4M3(q[n])
				}
				return v * slowE8M0(s[(x[0]*down+x[1]/h)*across+x[2]/l])
			}
		})
	}
	for _, strategy := range []string{"channel", "tensor", "block", "scalar", "fbgemm"} {
		add("FP8 "+strategy, func(m maker, w *twin) {
			o, i := size(50), size(50)
			w.config = compressedConfig("float-quantized", object{"num_bits": 8, "type": "float", "strategy": strategy, "block_structure": []int{7, 9}})
			q := m.random("a.weight", safetensors.F8_E4M3, o, i)
			shape := map[string][]int{"channel": {o, 1}, "fbgemm": {o, 1}, "tensor": {1}, "block": {(o + 6) / 7, (i + 8) / 9}}[strategy]
			switch strategy {
			case "scalar":
				w.config = method("fp8", object{"activation_scheme": "static"})
			case "fbgemm":
				w.config = method("fbgemm_fp8", object{"activation_scale_ub": 1200.0})
				m.floats("a.input_scale_ub", safetensors.F32, 1)
			}
			m.floats("a.input_scale", safetensors.BF16, 1)
			s := m.floats("a.weight_scale", safetensors.BF16, shape...)
			w.shape = []int{o, i}
			w.at = func(x []int) float32 {
				return slowE4M3(q[x[0]*i+x[1]]) * s[map[string]int{"channel": x[0], "fbgemm": x[0], "block": x[0]/7*((i+8)/9) + x[1]/9}[strategy]]
			}
		})
	}
	add("INT8", func(m maker, w *twin) {
		o, i := size(50), size(50)
		w.config = compressedConfig("int-quantized", object{"num_bits": 8, "type": "int", "strategy": "channel"})
		q, s := m.random("a.weight", safetensors.I8, o, i), m.floats("a.weight_scale", safetensors.BF16, o, 1)
		w.shape = []int{o, i}
		w.at = func(x []int) float32 { return float32(int8(q[x[0]*i+x[1]])) * s[x[0]] }
	})
	for _, strategy := range []string{"channel", "tensor", "block"} {
		for _, words := range []bool{false, true} {
			if words && strategy == "channel" {
				continue
			}
			add(fmt.Sprint("asymmetric by ", strategy, words), func(m maker, w *twin) {
				o, i := size(50), 4*size(12)
				format, name := "int-quantized", "a.weight"
				if words {
					format, name = "pack-quantized", "a.weight_packed"
					m.dimensions("a.weight_shape", o, i)
				}
				w.config = compressedConfig(format, object{"num_bits": 8, "type": "int", "strategy": strategy, "block_structure": []int{7, 9}, "symmetric": false})
				shape := map[string][]int{"channel": {o, 1}, "tensor": {1}, "block": {(o + 6) / 7, (i + 8) / 9}}[strategy]
				var q []byte
				if words {
					q = m.random(name, safetensors.I32, o, i/4)
				} else {
					q = m.random(name, safetensors.I8, o, i)
				}
				s, z := m.floats("a.weight_scale", safetensors.BF16, shape...), m.random("a.weight_zero_point", safetensors.I8, shape...)
				w.shape = []int{o, i}
				w.at = func(x []int) float32 {
					g := map[string]int{"channel": x[0], "block": x[0]/7*((i+8)/9) + x[1]/9}[strategy]
					v := q[x[0]*i+x[1]]
					if words {
						v -= 128
					}
					return (float32(int8(v)) - float32(int8(z[g]))) * s[g]
				}
			})
		}
	}
	for bits := 1; bits <= 8; bits++ {
		for _, asymmetric := range []bool{false, true} {
			add(fmt.Sprintf("packed %d asymmetric %v", bits, asymmetric), func(m maker, w *twin) {
				group := size(40)
				o, i := size(70), group*size(5)
				words, groups := (i*bits+31)/32, i/group
				w.config = compressedConfig("pack-quantized", object{"num_bits": bits, "type": "int", "strategy": "group", "group_size": group, "symmetric": !asymmetric})
				q, s := m.random("a.weight_packed", safetensors.I32, o, words), m.floats("a.weight_scale", safetensors.F16, o, groups)
				m.dimensions("a.weight_shape", o, i)
				var z []byte
				if asymmetric {
					z = m.random("a.weight_zero_point", safetensors.I32, (o*bits+31)/32, groups)
				}
				w.shape = []int{o, i}
				w.at = func(x []int) float32 {
					g := x[1] / group
					v := float32(code(q, 32*x[0]*words+x[1]*bits, bits) - 1<<(bits-1))
					if asymmetric {
						v -= float32(down(z, x[0], g, groups, bits) - 1<<(bits-1))
					}
					return v * s[x[0]*groups+g]
				}
			})
		}
	}
	for _, used := range []bool{false, true} {
		add(fmt.Sprint("packed order ", used), func(m maker, w *twin) {
			o, i := size(20), 8*size(6)
			w.config = compressedConfig("pack-quantized", object{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8, "actorder": "group", "symmetric": !used})
			q, s := m.random("a.weight_packed", safetensors.I32, o, (i+7)/8), m.floats("a.weight_scale", safetensors.BF16, o, i/8)
			m.dimensions("a.weight_shape", o, i)
			var index []byte
			groups := make([]int, i)
			for c := range i {
				groups[c] = c / 8
				stored := -1
				if used {
					groups[c] = r.IntN(i / 8)
					stored = groups[c]
				}
				index = binary.LittleEndian.AppendUint32(index, uint32(stored))
			}
			m.put("a.weight_g_idx", safetensors.I32, index, i)
			z := bytes.Repeat([]byte{0x88}, (o+7)/8*4*(i/8)) // zeros
			if used {
				z = m.random("a.weight_zero_point", safetensors.I32, (o+7)/8, i/8)
			}
			w.shape = []int{o, i}
			w.at = func(x []int) float32 {
				g := groups[x[1]]
				zero := down(z, x[0], g, i/8, 4) - 8
				return (float32(code(q, 4*(x[0]*i+x[1]), 4)-8) - float32(zero)) * s[x[0]*(i/8)+g]
			}
		})
	}
	for _, ours := range []bool{true, false} {
		add(fmt.Sprint("NVFP4 ", ours), func(m maker, w *twin) {
			o, i := size(20), 16*size(6)
			var q, s []byte
			var g []float32
			if ours {
				w.config = compressedConfig("nvfp4-pack-quantized", object{"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16})
				q, s, g = m.random("a.weight_packed", safetensors.U8, o, i/2), m.random("a.weight_scale", safetensors.F8_E4M3, o, i/16), m.floats("a.weight_global_scale", safetensors.F32, 1)
			} else {
				w.config = text(object{"quantization": object{"quant_algo": "NVFP4", "group_size": 16}})
				q, s, g = m.random("a.weight", safetensors.U8, o, i/2), m.random("a.weight_scale", safetensors.F8_E4M3, o, i/16), m.floats("a.weight_scale_2", safetensors.F32)
			}
			w.shape = []int{o, i}
			w.at = func(x []int) float32 {
				scale := slowE4M3(s[x[0]*(i/16)+x[1]/16])
				if ours {
					scale /= g[0]
				} else {
					scale *= g[0]
				}
				return slowE2M1(code(q, 4*(x[0]*i+x[1]), 4)) * scale
			}
		})
	}
	add("gpt-oss", func(m maker, w *twin) {
		e, rows, i := size(3), size(40), 32*size(4)
		w.config, w.name = method("mxfp4", object{}), "a.gate_up_proj"
		q, s := m.random("a.gate_up_proj_blocks", safetensors.U8, e, rows, i/32, 16), m.random("a.gate_up_proj_scales", safetensors.U8, e, rows, i/32)
		w.shape = []int{e, i, rows}
		w.at = func(x []int) float32 {
			line := x[0]*rows + x[2]
			return slowE2M1(code(q, 4*(line*i+x[1]), 4)) * slowE8M0(s[line*(i/32)+x[1]/32])
		}
	})
	for _, bits := range []int{2, 3, 4, 8} {
		for _, version := range []string{"gptq", "gptq_v2", "auto_round:auto_gptq", "auto_round"} {
			add(fmt.Sprint("GPTQ ", bits, version), func(m maker, w *twin) {
				group := size(60)
				o, i := 32*size(3), 32*size(4)
				groups := (i + group - 1) / group
				w.config = method("gptq", object{"bits": bits, "group_size": group, "checkpoint_format": version})
				if strings.HasPrefix(version, "auto_round") {
					w.config = method("auto-round", object{"bits": 5, "group_size": 7, "packing_format": version, "extra_config": object{"a": object{"bits": bits, "group_size": group}}})
				}
				q, z, s := m.random("a.qweight", safetensors.I32, i*bits/32, o), m.random("a.qzeros", safetensors.I32, groups, o*bits/32), m.floats("a.scales", safetensors.F16, groups, o)
				of := func(c int) int { return c / group }
				if bits == 3 || bits == 4 {
					w.config = strings.ReplaceAll(w.config, `"checkpoint_format"`, `"desc_act":true,"checkpoint_format"`)
					w.config = strings.ReplaceAll(w.config, `"packing_format"`, `"desc_act":true,"packing_format"`)
					var index []byte
					for range i {
						index = binary.LittleEndian.AppendUint32(index, uint32(r.IntN(groups)))
					}
					m.put("a.g_idx", safetensors.I32, index, i)
					of = func(c int) int { return int(binary.LittleEndian.Uint32(index[4*c:])) }
				}
				w.shape = []int{o, i}
				w.at = func(x []int) float32 {
					g := of(x[1])
					zero := code(z, 32*(g*o*bits/32)+x[0]*bits, bits)
					if strings.HasSuffix(version, "gptq") {
						zero = (zero + 1) & (1<<bits - 1)
					}
					return (float32(down(q, x[1], x[0], o, bits)) - float32(zero)) * s[g*o+x[0]]
				}
			})
		}
	}
	awq := func(m maker, w *twin) {
		group := size(30)
		o, i := 8*size(6), group*size(4)
		w.config = method("awq", object{"version": "gemm", "bits": 4, "group_size": group, "zero_point": true})
		if w.title == "AutoRound" {
			w.config = method("auto-round", object{"bits": 4, "group_size": group, "packing_format": "auto_round:auto_awq", "data_type": "int", "act_bits": 16})
		}
		q, z, s := m.random("a.qweight", safetensors.I32, i, o/8), m.random("a.qzeros", safetensors.I32, i/group, o/8), m.floats("a.scales", safetensors.F16, i/group, o)
		w.shape = []int{o, i}
		nibble := func(b []byte, line, row int) float32 {
			k := map[int]int{0: 0, 2: 1, 4: 2, 6: 3, 1: 4, 3: 5, 5: 6, 7: 7}[row%8]
			return float32(code(b, 32*(line*o/8+row/8)+4*k, 4))
		}
		w.at = func(x []int) float32 {
			g := x[1] / group
			return (nibble(q, x[1], x[0]) - nibble(z, g, x[0])) * s[g*o+x[0]]
		}
	}
	add("AWQ", awq)
	add("AutoRound", awq)
	add("GPTQ dynamic", func(m maker, w *twin) {
		group := 32
		o, i := 32*size(3), 32*size(4)
		w.config = `{"quantization_config":{"quant_method":"gptq","bits":3,"group_size":-1,"dynamic":{"-:b":{},"+:^a$":{"bits":8,"group_size":32},"a":{"bits":2}}}}`
		q, z, s := m.random("a.qweight", safetensors.I32, i/4, o), m.random("a.qzeros", safetensors.I32, i/group, o/4), m.floats("a.scales", safetensors.F16, i/group, o)
		w.shape = []int{o, i}
		w.at = func(x []int) float32 {
			g := x[1] / group
			return (float32(down(q, x[1], x[0], o, 8)) - float32(byte(z[g*o+x[0]]+1))) * s[g*o+x[0]]
		}
	})
	comfy := func(format, d string, scale []int, title string) {
		add("ComfyUI "+title, func(m maker, w *twin) {
			o, i := size(150), 64*size(5)
			w.config = "{}"
			if format != "" {
				marker := text(object{"format": format, "full_precision_matrix_mult": true, "convrot": false})
				m.put("a.comfy_quant", safetensors.U8, []byte(marker), len(marker))
			}
			blocked := func(r, c, columns int) int {
				c0 := (columns + 3) / 4
				return (r/128*c0+c/4)*512 + r%32*16 + r%128/32*4 + c%4
			}
			padded := func(group int) []int { return []int{(o + 127) / 128 * 128, (i/group + 3) / 4 * 4} }
			w.shape = []int{o, i}
			switch format {
			case "nvfp4":
				q, s, g := m.random("a.weight", safetensors.U8, o, i/2), m.random("a.weight_scale", safetensors.F8_E4M3, padded(16)...), m.floats("a.weight_scale_2", safetensors.F32)
				w.at = func(x []int) float32 {
					b := q[(x[0]*i+x[1])/2]
					return slowE2M1(int(b>>(4-x[1]%2*4)&15)) * float32(slowE4M3(s[blocked(x[0], x[1]/16, i/16)])*g[0])
				}
				return
			case "mxfp8":
				q, s := m.random("a.weight", safetensors.F8_E4M3, o, i), m.random("a.weight_scale", safetensors.U8, padded(32)...)
				w.at = func(x []int) float32 {
					return slowE4M3(q[x[0]*i+x[1]]) * slowE8M0(s[blocked(x[0], x[1]/32, i/32)])
				}
				return
			}
			name := "a.weight_scale"
			if format == "" {
				name = "a.scale_weight"
				m.put("scaled_fp8", safetensors.F8_E4M3, nil, 0)
				m.floats("a.scale_input", safetensors.F32)
			} else {
				m.floats("a.input_scale", safetensors.F32)
			}
			if len(scale) == 2 {
				scale = []int{o, 1}
			}
			dtype := map[string]safetensors.DType{"e4m3": safetensors.F8_E4M3, "e5m2": safetensors.F8_E5M2, "int8": safetensors.I8}[d]
			q, s := m.random("a.weight", dtype, o, i), m.floats(name, safetensors.F32, scale...)
			w.at = func(x []int) float32 {
				b := q[x[0]*i+x[1]]
				v := map[string]float32{"e4m3": slowE4M3(b), "e5m2": slowE5M2(b), "int8": float32(int8(b))}[d]
				return v * s[x[0]*len(scale)/2]
			}
		})
	}
	comfy("float8_e4m3fn", "e4m3", nil, "FP8")
	comfy("float8_e5m2", "e5m2", nil, "E5M2")
	comfy("int8_tensorwise", "int8", []int{}, "INT8")
	comfy("int8_tensorwise", "int8", []int{0, 1}, "INT8 rows")
	comfy("nvfp4", "", nil, "NVFP4")
	comfy("mxfp8", "", nil, "MXFP8")
	comfy("", "e4m3", nil, "without markers")
	for _, nested := range []bool{false, true} {
		add(fmt.Sprint("NF4 nested ", nested), func(m maker, w *twin) {
			o, i, block, outer := size(20), size(60), size(40), size(5)
			n := o * i
			blocks := (n + block - 1) / block
			w.config = method("bitsandbytes", object{"load_in_4bit": true})
			storage := safetensors.U8
			if nested { // a parameter of its own, in storage of another dtype
				w.name, storage = "a.gate_up_proj", []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32}[r.IntN(3)]
			}
			unit := storage.Bits() / 8
			if unit > 1 {
				o, i = 1, (n+7)/8*8
				n, blocks = i, (i+block-1)/block
			}
			q, numbers := m.random(w.name, storage, (n+1)/2/unit, 1), m.floats(w.name+".quant_map", safetensors.F32, 16)
			state := object{"quant_type": "nf4", "blocksize": block, "dtype": "bfloat16", "shape": []int{o, i}}
			var scale func(k int) float32
			if nested {
				state["nested_blocksize"], state["nested_offset"] = outer, 0.1
				c, nestedNumbers := m.random(w.name+".absmax", safetensors.U8, blocks), m.floats(w.name+".nested_quant_map", safetensors.F32, 256)
				s := m.floats(w.name+".nested_absmax", safetensors.F32, (blocks+outer-1)/outer)
				scale = func(k int) float32 { return float32(nestedNumbers[c[k]]*s[k/outer]) + float32(0.1) }
			} else {
				s := m.floats(w.name+".absmax", safetensors.F32, blocks)
				scale = func(k int) float32 { return s[k] }
			}
			json := []byte(text(state))
			m.put(w.name+".quant_state.bitsandbytes__nf4", safetensors.U8, json, len(json))
			w.shape = []int{o, i}
			w.at = func(x []int) float32 {
				e := x[0]*i + x[1]
				return numbers[q[e/2]>>(4-e%2*4)&15] * scale(e/block)
			}
		})
	}
	add("INT8 SCB", func(m maker, w *twin) {
		o, i := size(20), size(20)
		w.config = method("bitsandbytes", object{"load_in_8bit": true})
		q, s := m.random("a.weight", safetensors.I8, o, i), m.floats("a.SCB", safetensors.F32, o)
		m.put("a.weight_format", safetensors.U8, []byte{0})
		w.shape = []int{o, i}
		w.at = func(x []int) float32 {
			return float32(float32(int8(q[x[0]*i+x[1]]))*s[x[0]]) * float32(0.007874015718698502)
		}
	})
	for _, bits := range []int{2, 3, 4, 5, 6, 8} {
		add(fmt.Sprint("MLX ", bits), func(m maker, w *twin) {
			group := 32 * size(2)
			o, i := size(20), group*size(3)
			w.config = text(object{"quantization": object{"bits": bits, "group_size": group}})
			q, s, b := m.random("a.weight", safetensors.U32, o, i*bits/32), m.floats("a.scales", safetensors.BF16, o, i/group), m.floats("a.biases", safetensors.BF16, o, i/group)
			w.shape = []int{o, i}
			w.at = func(x []int) float32 {
				g := x[0]*(i/group) + x[1]/group
				return float32(float32(code(q, (x[0]*i+x[1])*bits, bits))*s[g]) + b[g]
			}
		})
	}
	return all
}

// elements returns what the twin says of a range of each dimension.
func (w twin) elements() []float32 {
	n := 1
	for _, d := range w.shape {
		n *= d
	}
	v := make([]float32, n)
	for e := range v {
		v[e] = w.at(w.index(e))
	}
	return v
}

// index returns where element e is.
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
	layouts, err := quant.Layouts(w.tensors, []byte(w.config))
	require.NoError(t, err)
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
