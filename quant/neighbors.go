package quant

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
)

var (
	// ofInputs are suffixes of the scales and zero points that a quantised module may have for its
	// inputs and outputs. Such a tensor has one element, or one for each expert.
	ofInputs = []string{"input_scale", "input_scale_ub", "input_global_scale", "input_zero_point", "activation_scale", "output_scale", "scale_input"}

	// ofCaches are suffixes of the scales that an attention layer may have for its cache. Such a
	// scale has one element, or one for each head.
	ofCaches = []string{"k_scale", "v_scale", "q_scale", "prob_scale"}

	// cachedBy maps the suffix of a scale to the module whose outputs are cached. If that module is
	// quantised, a scale of one element next to or below it belongs to its cache, whatever the name
	// of the module around them is.
	cachedBy = map[string]string{"k_scale": "k_proj", "v_scale": "v_proj"}
)

// strangers identify tensors of layouts that this package does not read: by a suffix, by the suffix
// of a tensor next to it ("" if there is none), and by the program that writes them.
var strangers = []struct{ suffix, with, who string }{
	{"_weight_qdata", "", "torchao"}, {"_weight_scale", "", "torchao"},
	{"_data", "_scale", "Quanto"},
	{"weight_scales", "weight", "EETQ"},
	{"W_q", "", "HQQ or SINQ"},
	{"codebooks", "codes", "AQLM"},
	{"trellis", "suh", "EXL3"},
	{"embedding_quantized", "embedding_scale", "Gemma"},
	{"bitmask", "compressed", "sparse-bitmask"},
	{"pre_quant_scale", "", "ModelOpt, with smoothed weights"},
	{"svdquant_lora_a", "svdquant_lora_b", "SVDQuant"},
	{"scaled_fp8", "", "ComfyUI, whose scales are missing"},
}

// accountFor classifies the tensors of rest, which belong to no module. It removes those that no
// result needs, such as the scales of inputs, and refuses those that may be parts of a quantised
// tensor. If a refused tensor is next to a module, that module is left out, too. accountFor returns
// the remaining modules.
func accountFor(rest map[string]safetensors.Tensor, names []string, modules []*module, c *config, omitted *leftOut) []*module {
	owners := make(map[string]*module, len(modules))
	for _, m := range modules {
		owners[m.path()] = m
	}
	for _, path := range slices.Sorted(maps.Keys(c.markers)) {
		if owners[path] == nil {
			omitted.out(path, func() {
				panic(problem{fmt.Errorf("a marker specifies that %s is quantised as %s, but its tensors are not", quote(path), c.markers[path])})
			})
		}
	}
	for _, name := range names {
		t, ok := rest[name]
		if !ok {
			continue
		}
		switch owner, suffix := ownerOf(name, owners); {
		case len(modules) > 0 && (c.ofCache(name, t, owners) || name == "scaled_fp8" || strings.HasSuffix(name, ".scaled_fp8")),
			owner != nil && owner.ofInput(suffix, t):
			delete(rest, name)
		case owner == nil:
			omitted.out(name, func() { checkPlain(rest, name, t, c) })
		case !isBias(name, t):
			omitted.module(owner, name, func() {
				refuse(name, "%v next to %s (%s): %w", t, quote(owner.name(values)), owner.layout.name, errors.ErrUnsupported)
			})
		}
	}
	return slices.DeleteFunc(modules, func(m *module) bool { return omitted.owners[m] })
}

// ownerOf returns the module that a tensor is next to, or below, and the rest of the tensor's name.
// It looks only at the last few components, because a hostile name may have many.
func ownerOf(name string, owners map[string]*module) (*module, string) {
	end := len(name)
	for range 6 {
		end = strings.LastIndexAny(name[:end], "._")
		if end < 0 {
			break
		}
		m := owners[name[:end]]
		if m != nil && (name[end] == '.' || !strings.HasSuffix(m.result(), ".weight")) {
			return m, name[end+1:]
		}
	}
	if m := owners[""]; m != nil && !strings.Contains(name, ".") {
		return m, name
	}
	return nil, ""
}

// ofInput reports whether a tensor next to m is a scale or a zero point of its inputs or outputs.
func (m *module) ofInput(suffix string, t safetensors.Tensor) bool {
	s := m.tensor[values].Shape()
	ofExperts := len(s) == 3 && slices.Equal(t.Shape(), s[:1])
	return slices.Contains(ofInputs, suffix) && (t.Len() == 1 || ofExperts)
}

// ofCache reports whether a tensor is a scale of the cache of an attention layer, judging by its
// name, dtype and shape.
func (c *config) ofCache(name string, t safetensors.Tensor, owners map[string]*module) bool {
	dot := strings.LastIndexByte(name, '.')
	if !slices.Contains(ofCaches, name[dot+1:]) || !slices.Contains(isFloat, t.DType()) {
		return false
	}
	path := name[:max(dot, 0)]
	if proj := cachedBy[name[dot+1:]]; proj != "" && t.Len() == 1 {
		below := owners[path] != nil && strings.HasSuffix("."+path, "."+proj)
		if beside := owners[strings.TrimPrefix(path+"."+proj, ".")]; below || beside != nil {
			return true
		}
	}
	attention := strings.Contains(strings.ToLower(path), "att")
	return attention && (t.Len() == 1 || slices.Contains(c.heads, t.Len()) && slices.Contains(t.Shape(), t.Len()))
}

// checkPlain refuses a tensor that looks like a quantised tensor, or like a part of one.
func checkPlain(rest map[string]safetensors.Tensor, name string, t safetensors.Tensor, c *config) {
	suffix := name[strings.LastIndexByte(name, '.')+1:]
	module := name[:len(name)-len(suffix)]
	for _, s := range strangers {
		if _, ok := rest[module+s.with]; suffix == s.suffix && (ok || s.with == "") {
			refuse(name, "quantised by %s: %w", s.who, errors.ErrUnsupported)
		}
	}
	checkPart(rest, name, t, c)
	integer := slices.Contains([]safetensors.DType{i8, u8, safetensors.I16, safetensors.U16, i32, u32}, t.DType())
	eight := t.DType() == e4m3 || t.DType() == e5m2
	if !integer && !eight || len(t.Shape()) < 2 {
		return
	}
	names := []string{name + "_scale", name + "_scale_inv", name + "_scales", name + "_weight_scale", name + ".scale"}
	if module != "" || strings.Contains(suffix, "weight") { // otherwise "scale" may be a tensor of its own, and not part of a module
		names = append(names, module+"scale", module+"scales", module+"weight_scale", module+"qscale_weight")
	}
	for _, scale := range names {
		if s, ok := rest[scale]; ok && scale != name {
			refuse(name, "no layout has %v with scales %v under such names: %w", t, s, errors.ErrUnsupported)
		}
	}
	if integer && suffix == "weight" {
		refuse(name, "%v is quantised in no layout that is known: %w", t, errors.ErrUnsupported)
	}
}

// checkPart refuses a tensor whose name and dtype are those of a part in a layout.
func checkPart(rest map[string]safetensors.Tensor, name string, t safetensors.Tensor, c *config) {
	for _, l := range layouts {
		for _, p := range l.parts {
			stem, ok := p.stem(name)
			if !ok || p.role == order {
				continue
			}
			switch p.suffix {
			case "", "weight", "scale", "scales", "biases", "_blocks", "_scales":
				// Unquantised tensors also have such names. Only the config distinguishes them,
				// or a marker, which names its module.
				if c.method == comfy || !slices.Contains(l.methods, c.method) || !p.has(t) || p.role == values && slices.Contains(isFloat, t.DType()) ||
					c.ignores(strings.TrimSuffix(strings.TrimSuffix(stem, ".weight"), ".")) {
					continue
				}
			}
			if _, ok := rest[name+"_weight_scale"]; ok && p.role == values && p.suffix == "" {
				continue // checkPlain refuses the two tensors together
			}
			const belongs = "%v belongs to a quantised tensor, but "
			if p.role == values {
				refuse(name, belongs+"its scales, such as %s, are missing", t, quote((&module{layout: l, stem: stem}).name(scales)))
			}
			refuse(name, belongs+"there is no tensor %s of dtype %v", t, quote(stem+l.parts[0].suffix), l.parts[0].dtypes[0])
		}
	}
}
