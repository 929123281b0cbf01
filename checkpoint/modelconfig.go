package checkpoint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/pyjson"
)

// A modelConfig holds the fields of a config.json that concern the tensors. A field that is absent is nil.
type modelConfig struct {
	text []byte

	modelconfig.Library
	DType        any             `json:"dtype"`
	TorchDType   any             `json:"torch_dtype"`
	Tie          *bool           `json:"tie_word_embeddings"`
	Quantization json.RawMessage `json:"quantization_config"`
	MLX          json.RawMessage `json:"quantization"`
	Weights      string          `json:"transformers_weights"` // the file that transformers opens, instead of one with a usual name
	InFeatures   any             `json:"in_features"`
	OutFeatures  any             `json:"out_features"`
	Bias         *bool           `json:"bias"`
	Activation   any             `json:"activation_function"`
	AutoMap      json.RawMessage `json:"auto_map"`

	// Remote reports whether the code of the model is in the repository, and not in transformers.
	Remote bool `json:"-"`
}

func (m *modelConfig) parse(text []byte) error {
	var object map[string]json.RawMessage
	if err := parseJSON(text, &object); err != nil {
		return err
	}
	m.text = text
	var read modelConfig
	if unmarshal(text, &read) == nil { // otherwise a field has an unexpected type, and no field is used
		read.text = text
		for _, section := range []*json.RawMessage{&read.Quantization, &read.MLX, &read.AutoMap} {
			if string(*section) == "null" {
				*section = nil
			}
		}
		read.Remote = read.AutoMap != nil
		*m = read
	}
	return nil
}

// class returns the class of transformers that the config names, or "" if there is none, or if its code is in the
// repository.
func (m *modelConfig) class() string {
	if len(m.Architectures) == 0 || m.Remote {
		return ""
	}
	return m.Architectures[0]
}

// isDense reports whether the config is that of a Dense module of sentence-transformers.
func (m *modelConfig) isDense() bool {
	return m.Type == "" && m.Class == "" && m.InFeatures != nil && m.OutFeatures != nil && m.Bias != nil && m.Activation != nil
}

// parts returns the config and the configs within it, up to three levels down, that have a model_type. If the config
// names a class, as configs that transformers saves do, the parts also have the default numbers of their types.
func (m *modelConfig) parts() (parts []configPart) {
	for _, p := range m.stored() {
		if len(m.Architectures) > 0 && !m.Remote && !p.overridden {
			p.fields = completed(p.fields)
		}
		parts = append(parts, p)
	}
	return parts
}

// stored returns the parts without defaults.
func (m *modelConfig) stored() (parts []configPart) {
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader(pyjson.WithNulls(m.text)))
	decoder.UseNumber()
	if decoder.Decode(&fields) != nil {
		return nil
	}
	var walk func(fields map[string]any, path string, depth int, overridden bool)
	walk = func(fields map[string]any, path string, depth int, overridden bool) {
		if name, ok := fields["model_type"].(string); ok {
			parts = append(parts, configPart{name, path, fields, overridden})
		}
		for _, key := range slices.Sorted(maps.Keys(fields)) {
			if below, ok := fields[key].(map[string]any); ok && depth < 3 {
				walk(below, path+key+".", depth+1, overridden || fields[key+"_dict"] != nil)
			}
		}
	}
	walk(fields, "", 0, false)
	return parts
}

// own returns the fields of the config itself, as parts returns them, or nil if it has no model_type.
func (m *modelConfig) own() map[string]any {
	for _, p := range m.parts() {
		if p.path == "" {
			return p.fields
		}
	}
	return nil
}

// sharing matches the keys of settings that let layers share keys and values, or make layers of different kinds.
var sharing = lazyregexp.New(`kv_shar|share_factor|_cla$|yoco|k_eq_v|pattern|interval|hybrid|block_configs`)

// sharesKeys reports whether a layer may share its keys and values with another one, or be of another kind than all others.
func (m *modelConfig) sharesKeys(layer int) bool {
	return slices.ContainsFunc(m.stored(), func(p configPart) bool {
		if types, _ := p.fields["layer_types"].([]any); layer < len(types) {
			same := slices.DeleteFunc(slices.Clone(types), func(kind any) bool { return fmt.Sprint(kind) != fmt.Sprint(types[layer]) })
			return len(same) == 1
		}
		for key, value := range p.fields {
			if sharing().MatchString(key) && !slices.Contains([]string{"<nil>", "false", "0"}, fmt.Sprint(value)) {
				return true
			}
		}
		return false
	})
}

// counts returns the numbers of layers that the config and the configs within it specify.
func (m *modelConfig) counts() (counts []int) {
	for _, p := range m.parts() {
		for _, key := range []string{"num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers", "depth"} {
			if n, ok := number(p.fields[key]); ok {
				counts = append(counts, n)
			}
		}
	}
	return counts
}

// A configPart is a config.json, or a config within one.
type configPart struct {
	Type   string
	path   string // keys that lead to it, each with a dot after it; "" for the config.json
	fields map[string]any

	overridden bool // whether another section replaces some of its fields, as text_config_dict of CLIP does
}
