package quant

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A Scheme is a way to quantise, in a layout of compressed-tensors.
type Scheme string

// The schemes, and the presets of compressed-tensors whose weights they have. They need
// no calibration; inputs stay as they are, or are quantised as the model runs.
const (
	FP8Block   Scheme = "fp8-block"   // F8_E4M3, a scale for a block of 128×128 (FP8_BLOCK)
	FP8Channel Scheme = "fp8-channel" // F8_E4M3, a scale for a row (FP8_DYNAMIC)
	NVFP4      Scheme = "nvfp4"       // E2M1, an F8_E4M3 scale for 16 columns, one scale for those (NVFP4A16)
	MXFP4      Scheme = "mxfp4"       // E2M1, a power of two for 32 columns (MXFP4A16)
	Int4       Scheme = "int4"        // 4-bit integers, a scale for 128 columns (W4A16)
	Int8       Scheme = "int8"        // 8-bit integers, a scale for 128 columns (W8A16)
)

// A Recipe is how Quantize quantises.
type Recipe struct {
	Scheme Scheme

	// Targets selects the tensors to quantise: each must be a matrix of BF16, F16 or F32
	// whose name ends in ".weight", with columns in whole groups. nil selects all such
	// matrices but those whose names speak of embeddings, routers, norms or lm_head.
	Targets func(name string, t safetensors.Tensor) bool
}

// A preset is how a scheme quantises, into a layout of compressed-tensors. A scale is for
// height rows and width columns; 0 stands for all.
type preset struct {
	format        string // of the layout
	height, width int
	bits          int
	pack          func(x []float32) []byte // rounds numbers to the values
	reach         float32                  // half of the range of values; a scale maps it to the largest number
	scale         safetensors.DType        // of the scales; 0: that of the tensor
	weights       object                   // of the config
	inputs        object
}

type object = map[string]any

func weightsOf(bits int, kind, strategy string, group any, more object) object {
	w := object{"num_bits": bits, "type": kind, "symmetric": true, "strategy": strategy, "group_size": group, "dynamic": false}
	maps.Copy(w, more)
	return w
}

var presets = map[Scheme]preset{
	FP8Block: {"float-quantized", 128, 128, 8, packE4M3, 448, 0, weightsOf(8, "float", "block", nil, object{"block_structure": []int{128, 128}}),
		weightsOf(8, "float", "group", 128, object{"dynamic": true})},
	FP8Channel: {"float-quantized", 1, 0, 8, packE4M3, 448, 0, weightsOf(8, "float", "channel", nil, nil),
		weightsOf(8, "float", "token", nil, object{"dynamic": true})},
	NVFP4: {"nvfp4-pack-quantized", 1, 16, 4, packCodes(4, codeE2M1), 6, e4m3, weightsOf(4, "float", "tensor_group", 16, object{"scale_dtype": "torch.float8_e4m3fn"}), nil},
	MXFP4: {"mxfp4-pack-quantized", 1, 32, 4, packCodes(4, codeE2M1), 6, u8, weightsOf(4, "float", "group", 32, object{"scale_dtype": "torch.uint8"}), nil},
	Int4:  {"pack-quantized", 1, 128, 4, packCodes(4, codeInt4), 7.5, 0, weightsOf(4, "int", "group", 128, nil), nil},
	Int8:  {"pack-quantized", 1, 128, 8, packCodes(8, codeInt8), 127.5, 0, weightsOf(8, "int", "group", 128, nil), nil},
}

// Quantize returns a checkpoint in which the targets of a recipe are quantised: each as
// values and scales, in the layout of compressed-tensors, which transformers and vLLM
// load. The other tensors stay as they are. config is a JSON object with the
// quantization_config that belongs in config.json.
//
// Values are rounded to the nearest, ties to even, and scales map the largest value of
// their block to the largest number, as the minmax observers of compressed-tensors do,
// in the arithmetic of the tensor's dtype: the bytes are those of compressed-tensors.
// With NVFP4, the projections that vLLM fuses (q, k and v; gate and up) share their
// global scale.
//
// A target that does not fit is an error. Tensors that are quantised already are an error,
// too: the config would not say how.
//
// The results are lazy: they read and quantise a band of rows at a time when they are
// read. Neither map is modified.
func Quantize(tensors map[string]safetensors.Tensor, r Recipe) (quantised map[string]safetensors.Tensor, config []byte, err error) {
	defer func() { err = prefix.Add(err) }()
	defer catch(&err)
	p, ok := presets[r.Scheme]
	if !ok {
		return nil, nil, fmt.Errorf("scheme %q is none of %v", string(r.Scheme), slices.Sorted(maps.Keys(presets)))
	}
	nothing, _ := parseConfig(nil)
	modules, _, err := findModules(tensors, nothing)
	if err != nil {
		return nil, nil, err
	}
	if len(modules) > 0 {
		modules[0].fail(values, "it is quantised already; dequantise it first")
	}
	result := map[string]safetensors.Tensor{}
	ignore := map[string]bool{"lm_head": true}
	globals := map[string]*once[float32]{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		module, isWeight := strings.CutSuffix(name, ".weight")
		problem := p.refuses(name, t)
		switch {
		case r.Targets == nil && (problem != nil || unusual.MatchString(name)), r.Targets != nil && !r.Targets(name, t):
			result[name] = t
			if isWeight && len(t.Shape()) == 2 {
				ignore[module] = true
			}
			continue
		case problem != nil:
			refuse(name, "%w", problem)
		}
		first, all := p.together(tensors, module)
		if globals[first] == nil {
			globals[first] = &once[float32]{read: func() (float32, error) { return p.globalScale(all) }}
		}
		if err := p.split(result, module+".", t, globals[first]); err != nil {
			refuse(name, "%w", err)
		}
		delete(ignore, module)
	}
	text, err := json.Marshal(object{"quantization_config": object{
		"quant_method": compressed, "format": p.format, "quantization_status": "compressed",
		"config_groups": object{"group_0": object{
			"targets": []string{"Linear"}, "format": p.format, "weights": p.weights, "input_activations": p.inputs, "output_activations": nil,
		}},
		"ignore": slices.Sorted(maps.Keys(ignore)), "kv_cache_scheme": nil, "global_compression_ratio": nil,
	}})
	return result, text, err
}

// refuses says why a tensor cannot be quantised, nil if it can.
func (p preset) refuses(name string, t safetensors.Tensor) error {
	shape := t.Shape()
	switch {
	case !strings.HasSuffix(name, ".weight"):
		return fmt.Errorf("its name does not end in .weight")
	case !slices.Contains(isFloat, t.DType()) || len(shape) != 2 || t.Len() == 0:
		return fmt.Errorf("%v is not a matrix of BF16, F16 or F32", t)
	case p.height == 1 && p.width > 0 && shape[1]%p.width != 0:
		return fmt.Errorf("%d columns are not whole groups of %d", shape[1], p.width)
	}
	return nil
}

// unusual matches the names of weights that are not quantised unless somebody says otherwise.
var unusual = regexp.MustCompile(`(?i)embed|norm|(^|\.)(gate|shared_expert_gate|router|wte|wpe|lm_head|score|classifier)(\.|$)`)

// fused are the projections that vLLM joins into one. Each is in one group.
var fused = [][]string{{"gate_proj", "up_proj"}, {"q_proj", "k_proj", "v_proj"}, {"q_a_proj", "kv_a_proj_with_mqa"}, {"w1", "w3"}}

// together returns the tensors that share a global scale with the weight of a module, which
// is one of them, and the module of the first. All can be quantised.
func (p preset) together(tensors map[string]safetensors.Tensor, module string) (first string, all []safetensors.Tensor) {
	weight := tensors[module+".weight"]
	dot := strings.LastIndexByte(module, '.') + 1
	for _, group := range fused {
		if !slices.Contains(group, module[dot:]) {
			continue
		}
		for _, part := range group {
			other := module[:dot] + part + ".weight"
			if t := tensors[other]; t.DType() == weight.DType() && p.refuses(other, t) == nil {
				all = append(all, t)
			}
		}
		if len(all) == len(group) {
			return module[:dot] + group[0], all
		}
	}
	return module, []safetensors.Tensor{weight}
}

// split puts the parts that stand for a matrix into result: new names, since findModules
// knows all of them.
func (p preset) split(result map[string]safetensors.Tensor, stem string, t safetensors.Tensor, global *once[float32]) (err error) {
	l := layouts[slices.IndexFunc(layouts, func(l *layout) bool { return l.format == p.format })]
	o, i := t.Shape()[0], t.Shape()[1]
	p.width, p.scale = cmp.Or(p.width, i), cmp.Or(p.scale, t.DType())
	q := quantizer{preset: p, source: t, in: arithmetics[t.DType()], out: arithmetics[p.scale], rows: o, columns: i, global: global}
	for _, part := range l.parts {
		var made safetensors.Tensor
		switch d := part.dtypes[0]; part.role {
		case values:
			made, err = q.bands(values, d, 1, i*p.bits/d.Bits())
		case scales:
			made, err = q.bands(scales, p.scale, p.height, cdiv(i, p.width))
		case divisor:
			made, err = safetensors.NewTensorFunc(d, []int{1}, func(dst []float32) (err error) {
				dst[0], err = global.get()
				return err
			})
		case shape:
			made, err = safetensors.NewTensor(d, []int{2}, []int64{int64(o), int64(i)})
		default: // zero points, and the index of groups
			continue
		}
		if err != nil {
			return err
		}
		result[stem+part.suffix] = made
	}
	return nil
}
