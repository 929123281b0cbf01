package quant

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors/internal/modelconfig"
)

// A finding is a section of a config that describes how weights are quantised.
type finding struct {
	path []string // keys that lead to the section in the config
	text json.RawMessage
}

// quantisationKeys are the keys of such sections.
var quantisationKeys = []string{"quantization_config", "compression_config", "quantization"}

// An architecture contains properties of the model from the rest of its config.
type architecture struct {
	heads   []int // numbers of heads that an attention layer of the model may have
	conv1D  bool  // whether the model may have modules of a class that stores weights by columns
	joined  bool  // whether the experts of the model are separate modules only if it is quantised
	experts []int // numbers of experts that a layer may have; nil if the config specifies none
}

// withConv1D lists models of transformers, by their model_type, that have modules of its class
// Conv1D. The weight of such a module has a row for each input. namesConv1D lists the names of
// these modules. GPTQ, AWQ and bitsandbytes store such a weight, once quantised, like the weight of
// a linear layer, with a row for each output.
var (
	withConv1D  = []string{"gpt2", "openai-gpt", "imagegpt", "decision_transformer", "clvp", "clvp_decoder", "clvp_encoder"}
	namesConv1D = []string{"c_attn", "q_attn", "c_fc", "c_proj"}
)

// withJoinedExperts lists models of transformers, by their model_type, whose experts are stored as experts.go describes.
var withJoinedExperts = []string{"llama4", "llama4_text"}

// find returns the descriptions of the quantisation in a config and in the configs within it. The
// description in the config itself comes first, then that in its text_config: transformers looks
// for them in this order. find also sets the fields of a.
func (a *architecture) find(file *section, path []string) (all []finding) {
	model := strings.Trim(string(file.get("model_type")), `"`)
	a.conv1D = a.conv1D || slices.Contains(withConv1D, model)
	a.joined = a.joined || slices.Contains(withJoinedExperts, model)
	for _, key := range []string{"num_attention_heads", "num_key_value_heads"} {
		var n int
		if json.Unmarshal(file.get(key), &n) == nil && n > 1 {
			a.heads = append(a.heads, n)
		}
	}
	var experts int
	if json.Unmarshal(file.get("num_local_experts"), &experts) == nil && experts > 0 {
		a.experts = append(a.experts, experts)
	}
	if key := sectionIn(file.members, path); key != "" {
		all = append(all, finding{join(path, key), file.get(key)})
	}
	if len(path) == modelconfig.MaxDepth {
		return all
	}
	inner := slices.Clone(file.members)
	slices.SortStableFunc(inner, func(x, y member) int { return rank(x.key) - rank(y.key) })
	for _, m := range inner {
		if m.empty() || m.value[0] != '{' && m.key != "text_config" || slices.Contains(quantisationKeys, m.key) {
			continue
		}
		all = append(all, a.find(newSection(file.where+cut(m.key)+": ", m.value), join(path, m.key))...)
	}
	return all
}

// rank orders the keys of a config: text_config comes first.
func rank(key string) int {
	if key == "text_config" {
		return 0
	}
	return 1
}

// join returns a path with one more key.
func join(path []string, key string) []string { return append(slices.Clip(path), key) }

// sectionIn returns the key of the section that describes how the weights of a config are
// quantised, or "" if there is no such section.
func sectionIn(file members, path []string) string {
	var own, other, early members
	s, short := file.get("quantization_config"), file.get("quantization")
	bits := json.Unmarshal(s, &own) == nil && json.Unmarshal(short, &other) == nil && !own.has("quant_method") && other.has("bits")
	switch {
	case s != nil && !(bits && modelconfig.OfLanguage(path)):
		return "quantization_config"
	case s == nil && json.Unmarshal(file.get("compression_config"), &early) == nil && early.get("quant_method") != nil:
		return "compression_config" // compressed-tensors writes it; other programs use the key for something else
	case short != nil && modelconfig.OfLanguage(path):
		return "quantization" // ModelOpt writes this key alone; MLX writes both keys, and reads this one
	}
	return ""
}

// checkMethods returns an error if a config has a quant_method or quant_algo outside of the first
// finding and the copies of it, because some reader would use it.
func checkMethods(text []byte, found []finding) (err error) {
	used := []finding{}
	for _, f := range found {
		if sameJSON(f.text, found[0].text) {
			used = append(used, f)
		}
	}
	eachMethod(text, func(path []string, key string, value any) bool {
		isUsed := slices.ContainsFunc(used, func(f finding) bool {
			within := len(path) >= len(f.path) && slices.Equal(path[:len(f.path)], f.path)
			return within && (key == "quant_algo" || len(path) == len(f.path))
		})
		if !isUsed {
			err = fmt.Errorf("%s: %s %s is not used: %w", cut(strings.Join(path, ": ")), key, quote(fmt.Sprint(value)), errors.ErrUnsupported)
			if len(path) == 0 {
				err = fmt.Errorf("%s %s is not used: %w", key, quote(fmt.Sprint(value)), errors.ErrUnsupported)
			}
		}
		return isUsed
	})
	return err
}

// sameJSON reports whether two JSON texts have the same value.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	return bytes.Equal(a, b) || json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// eachMethod calls f for each non-empty quant_method and quant_algo in a config, with the keys that
// lead to the object around it, its own key, and its value. It stops when f returns false. It reads
// the text once, however deep its objects are nested.
func eachMethod(text []byte, f func(path []string, key string, value any) bool) {
	type level struct {
		object bool
		key    string // the key that was read last
		value  bool   // whether the value of key comes next
	}
	var levels []level
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	for {
		t, err := d.Token()
		if err != nil { // the text is valid, so this is its end
			return
		}
		n := len(levels) - 1
		if name, ok := t.(string); ok && n >= 0 && levels[n].object && !levels[n].value {
			levels[n].key, levels[n].value = name, true
			continue
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			levels = append(levels, level{object: t == json.Delim('{')})
			continue
		case json.Delim('}'), json.Delim(']'):
			levels = levels[:n]
			n--
		case nil, false, "":
		default:
			if n >= 0 && levels[n].object && (levels[n].key == "quant_method" || levels[n].key == "quant_algo") {
				path := make([]string, n)
				for i, l := range levels[:n] {
					if path[i] = l.key; !l.object {
						path[i] = "[]"
					}
				}
				if !f(path, levels[n].key, t) {
					return
				}
			}
		}
		if n >= 0 {
			levels[n].value = false
		}
	}
}
