package quant

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// A Scheme selects a layout of compressed-tensors, and which elements of a weight share a scale.
type Scheme string

// These are the schemes, with the presets of compressed-tensors that store weights in the same way.
// They need no calibration: inputs are not quantised, or are quantised while the model runs.
const (
	FP8Block   Scheme = "fp8-block"   // F8_E4M3, with a scale for each block of 128×128 (FP8_BLOCK)
	FP8Channel Scheme = "fp8-channel" // F8_E4M3, with a scale for each row (FP8_DYNAMIC)
	NVFP4      Scheme = "nvfp4"       // E2M1, with an F8_E4M3 scale for every 16 columns, and a scale of these scales (NVFP4A16)
	MXFP4      Scheme = "mxfp4"       // E2M1, with a power of two for every 32 columns (MXFP4A16)
	Int4       Scheme = "int4"        // 4-bit integers, with a scale for every 128 columns (W4A16)
	Int8       Scheme = "int8"        // 8-bit integers, with a scale for every 128 columns (W8A16)
)

// A Recipe specifies which tensors Quantize quantises, and how.
type Recipe struct {
	Scheme Scheme

	// Targets selects the tensors to quantise. Each must be a matrix of BF16, F16 or F32 whose name
	// ends in ".weight", with columns in whole groups. Its module must be of class Linear. Other
	// classes are recognised in GPT-2, which stores weights transposed, with a bias for each column,
	// and in I-BERT, which stores integers beside the weights. If Targets is nil, all such matrices are selected, except those
	// whose names suggest embeddings, routers, norms or heads.
	Targets func(name string, t safetensors.Tensor) bool
}

// A preset holds the details of a scheme, which quantises into a layout of compressed-tensors.
// height rows and width columns share a scale; 0 means all rows or columns. Presets must not be
// modified.
type preset struct {
	format        string // name of the layout in compressed-tensors
	height, width int
	bits          int
	pack          func(x []float32) []byte // rounds numbers to the nearest values of the format, and packs their codes
	reach         float32                  // half of the range of values; a scale maps it to the largest magnitude
	scale         safetensors.DType        // dtype of the scales; 0 means the dtype of the tensor
	weights       object                   // settings of weights and inputs, for the config
	inputs        object
}

type object = map[string]any

// weightsOf returns the settings of weights or inputs for a config. more has additional keys.
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

// Quantize returns a checkpoint in which the targets of a recipe are quantised. Each target becomes
// values and scales in the layout of compressed-tensors, which transformers and vLLM load. The
// other tensors stay unchanged. config is a JSON object with the quantization_config that belongs
// in config.json.
//
// Values are rounded to the nearest, ties to even, and scales map the largest value of their block
// to the largest number, as the minmax observers of compressed-tensors do in the arithmetic of the
// tensor's dtype: the bytes are those of compressed-tensors. With NVFP4, the projections that vLLM
// fuses (q, k and v; gate and up) share their global scale.
//
// Loaders apply the scales to modules of class Linear only. A matrix of another class cannot always be
// recognised by its name: Recipe.Targets can leave it out.
//
// Weights with three dimensions, such as those of fused experts, are not quantised: the config
// lists them, and the modules that contain them, as ignored. The experts of Llama 4 are an exception:
// each one becomes three matrices, as the loaders of its quantised checkpoints expect, and Targets is
// called for these matrices.
//
// A target that does not meet the conditions of Recipe.Targets is an error. So are tensors that are
// quantised already, since the config would not describe them, and a checkpoint without any target,
// since Dequantize refuses a config whose method no tensor uses.
//
// The results are lazy: they read and quantise a band of rows at a time when they are read. Neither
// map is modified.
func Quantize(tensors map[string]safetensors.Tensor, r Recipe) (quantised map[string]safetensors.Tensor, config []byte, err error) {
	defer func() { err = prefix.Add(err) }()
	defer catch(&err)
	p, ok := presets[r.Scheme]
	if !ok {
		return nil, nil, fmt.Errorf("scheme %q is not one of %v", string(r.Scheme), slices.Sorted(maps.Keys(presets)))
	}
	nothing, _ := parseConfig(nil)
	nothing.quantises = true
	modules, _, err := findModules(tensors, nothing)
	if err != nil {
		return nil, nil, err
	}
	if len(modules) > 0 {
		modules[0].fail(values, quantisedAlready)
	}
	if tensors, err = separateExperts(tensors); err != nil {
		return nil, nil, err
	}
	result := map[string]safetensors.Tensor{}
	ignore := map[string]bool{"lm_head": true}
	for _, module := range notStored(tensors) {
		ignore[module] = true
	}
	linear, ofVocabulary := newLinear(tensors), vocabularyOf(tensors)
	globals := map[string]*once[float32]{}
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		module := strings.TrimSuffix(name, ".weight")
		problem := p.refuses(name, t)
		if problem == nil {
			problem = linear.refuses(name)
		}
		switch {
		case r.Targets == nil && (problem != nil || ofVocabulary(name, t) || !usual(name)), r.Targets != nil && !r.Targets(name, t):
			result[name] = t
			for _, module := range ignoredWith(name, t) {
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
	if len(result) == len(tensors) { // no scale was added
		return nil, nil, r.noTarget()
	}
	config, err = p.config(slices.Sorted(maps.Keys(ignore)))
	return result, config, err
}

// quantisedAlready is the reason to refuse a part of a quantised tensor, in any layout.
const quantisedAlready = "it is quantised already; dequantise it first"

// config returns the JSON object with the quantization_config of a checkpoint that is quantised
// with p, except for the modules in ignore.
func (p preset) config(ignore []string) ([]byte, error) {
	return json.Marshal(object{"quantization_config": object{
		"quant_method": compressed, "format": p.format, "quantization_status": "compressed",
		"config_groups": object{"group_0": object{
			"targets": []string{"Linear"}, "format": p.format, "weights": p.weights, "input_activations": p.inputs, "output_activations": nil,
		}},
		"ignore": ignore, "kv_cache_scheme": nil, "global_compression_ratio": nil,
	}})
}

// noTarget returns the error for a checkpoint in which there is nothing to quantise.
func (r Recipe) noTarget() error {
	if r.Targets != nil {
		return errors.New("no tensor is quantised: Targets selects none")
	}
	groups := ""
	if p := presets[r.Scheme]; p.inGroups() {
		groups = fmt.Sprintf(", with columns in whole groups of %d", p.width)
	}
	return fmt.Errorf("no tensor can be quantised: %s takes matrices of BF16, F16 or F32 named *.weight%s; it takes embeddings, routers and heads only as targets, and never weights of other classes than Linear, such as those of GPT-2 and I-BERT", r.Scheme, groups)
}

// inGroups reports whether columns must come in whole groups.
func (p preset) inGroups() bool { return p.height == 1 && p.width > 0 }

// refuses returns the reason why a tensor cannot be quantised, or nil if it can.
func (p preset) refuses(name string, t safetensors.Tensor) error {
	shape := t.Shape()
	switch {
	case isFused(name, t):
		return fmt.Errorf("%v holds several matrices, such as those of fused experts, but the layouts of compressed-tensors have one for each module, so that it stays unchanged", t)
	case !strings.HasSuffix(name, ".weight"):
		return fmt.Errorf("its name does not end in .weight")
	case !slices.Contains(isFloat, t.DType()) || len(shape) != 2 || t.Len() == 0:
		return fmt.Errorf("%v is not a matrix of BF16, F16 or F32", t)
	case p.inGroups() && shape[1]%p.width != 0:
		return fmt.Errorf("%d columns are not whole groups of %d", shape[1], p.width)
	}
	return nil
}

// fused lists groups of projections that vLLM joins into one matrix. A projection is in one group
// only.
var fused = [][]string{{"gate_proj", "up_proj"}, {"q_proj", "k_proj", "v_proj"}, {"q_a_proj", "kv_a_proj_with_mqa"}, {"w1", "w3"}}

// together returns all tensors that share a global scale with the weight of a module, including
// that weight, and the module of the first of them. All of them can be quantised.
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

// split quantises a matrix and adds its parts to result. Their names cannot be in result yet,
// because findModules would have found tensors with such names.
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
		default: // zero points and the index of groups are not needed
			continue
		}
		if err != nil {
			return err
		}
		result[stem+part.suffix] = made
	}
	return nil
}
