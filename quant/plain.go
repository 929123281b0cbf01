package quant

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/pyjson"
	"github.com/gosafetensors/safetensors/internal/torchtype"
)

// PlainConfig returns the config.json of a dequantised model. It lacks the sections that describe
// how the weights were quantised, and has dtype d, which must be F64, F32, F16, BF16 or the zero
// DType. d replaces the dtypes in the config and in the configs of language models within it. If
// none of them has a dtype, the config gets a torch_dtype. Configs of other parts, such as a
// vision_config, keep their dtypes. The zero DType changes no dtype: use it for a model that will
// be quantised again.
//
// Keys keep their order, and NaN and infinities keep their Python spelling. Lines are indented by
// two spaces. config is not modified; if nothing changes, PlainConfig returns config itself. It
// reports invalid JSON but, unlike Dequantize, does not check the quantisation.
func PlainConfig(config []byte, d safetensors.DType) ([]byte, error) {
	dtype, ok := torchtype.OfLoaded(d.String())
	if !ok && d != 0 {
		return nil, prefix.Add(fmt.Errorf("%v is not a dtype in which models are loaded", d))
	}
	return prefix.Added(plainConfig(config, dtype.Name))
}

func plainConfig(text []byte, dtype string) (_ []byte, err error) {
	defer catch(&err)
	file := &section{where: "the config: "}
	if len(text) > maxConfig {
		file.fail("%d bytes exceed the limit of %d", len(text), maxConfig)
	}
	file.check(json.Unmarshal(pyjson.WithStrings(text), &file.members))
	p := plainer{dtype: dtype}
	p.change(file, nil)
	if dtype != "" && !p.named {
		file.members, p.changed = append(file.members, member{"torch_dtype", quoted(dtype)}), true
	}
	if !p.changed {
		return text, nil
	}
	var b bytes.Buffer
	if err := json.Indent(&b, file.text(), "", "  "); err != nil {
		return nil, err
	}
	return append(pyjson.WithWords(b.Bytes()), '\n'), nil
}

// A plainer changes a config and the configs within it, as PlainConfig describes.
type plainer struct {
	dtype   string // name of the new dtype; "" if dtypes stay
	named   bool   // whether some config had a dtype
	changed bool
}

// change changes the config s. path contains the keys that lead to it.
func (p *plainer) change(s *section, path []string) {
	ofWeights := modelconfig.OfLanguage(path)
	for key := sectionIn(s.members, path); key != ""; key = sectionIn(s.members, path) {
		s.members = slices.Delete(s.members, s.index(key), s.index(key)+1)
		p.changed, ofWeights = true, true
	}
	if i := s.index("quantization_config"); i >= 0 { // an empty section: sectionIn does not find such a section
		s.members, p.changed = slices.Delete(s.members, i, i+1), true
	}
	for i, m := range s.members {
		switch {
		case m.key == "dtype" || m.key == "torch_dtype":
			if p.dtype != "" && ofWeights && m.value[0] == '"' && !m.empty() {
				p.changed = p.changed || !bytes.Equal(m.value, quoted(p.dtype))
				s.members[i].value, p.named = quoted(p.dtype), true
			}
		case len(path) < modelconfig.MaxDepth && m.value[0] == '{' && !slices.Contains(quantisationKeys, m.key):
			inner, before := newSection(s.where+cut(m.key)+": ", m.value), p.changed
			p.changed = false
			if p.change(inner, join(path, m.key)); p.changed {
				s.members[i].value = inner.text()
			}
			p.changed = p.changed || before
		}
	}
}

// text returns the members as a JSON object.
func (all members) text() []byte {
	b := []byte{'{'}
	for i, m := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quoted(m.key)...), ':'), m.value...)
	}
	return append(b, '}')
}

// quoted returns s as a JSON string.
func quoted(s string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // never fails for a string
	return bytes.TrimSpace(b.Bytes())
}
