package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/pyjson"
	"github.com/gosafetensors/safetensors/internal/torchtype"
	"github.com/gosafetensors/safetensors/quant"
)

// quantConfigs are the names of the files that may describe how the weights next to them are
// quantised: those that quant.FindConfig reads, and those that GPTQ and AWQ wrote.
var quantConfigs = []string{"config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json"}

// changeConfig makes the config.json of the copy, with the dtypes of converted tensors, and with a
// different quantization_config or without one. It makes none if the source has none.
func (w *copyJob) changeConfig() error {
	changes := w.requantizes() || len(w.dtypes) > 0 || w.made
	if !changes && len(w.conversions) == 0 {
		return nil
	}
	text, err := w.src.Folder.ReadFile("config.json")
	if !changes && (err != nil || bytes.Equal(w.convertNames(text), text)) {
		return nil // no tensor was converted, and config.json stays as it is
	}
	if err == nil {
		if w.resized != (resizing{}) {
			text, err = w.resized.resizeConfig(text)
		}
		if err == nil && w.apart != (pair{}) {
			text = untiedConfig(text)
		}
		if err == nil {
			w.config, err = w.newConfig(text)
		}
		if err != nil {
			return fmt.Errorf("config.json of %s: %w", storage.Shown(w.src.Name), err)
		}
	}
	w.side = slices.DeleteFunc(w.side, func(name string) bool {
		return name == "config.json" || w.requantizes() && slices.Contains(quantConfigs, name)
	})
	if w.config != nil {
		w.side = append([]string{"config.json"}, w.side...)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w *copyJob) newConfig(text []byte) (_ []byte, err error) {
	text = w.convertNames(text)
	if !w.requantizes() {
		return text, nil
	}
	plain := w.plain
	if to, ok := w.conversions[plain]; ok {
		plain = to
	}
	if text, err = quant.PlainConfig(text, plain); err != nil || w.quantisation == nil {
		return text, term.Bare(err)
	}
	return withMembers(text, w.quantisation), nil
}

// dtypeOf matches a dtype in a config, or in a config within it.
var dtypeOf = lazyregexp.New(`("(?:torch_)?dtype"\s*:\s*")(\w+)"`)

// convertNames sets the dtypes in a config to the dtypes to which the tensors were converted, because transformers converts
// the tensors to the dtypes of the config when it loads the model. For that reason, a DTYPE of --dtype without FROM= also
// replaces dtypes that no tensor has, and a dtype stays if the new one would round other tensors of the copy.
func (w *copyJob) convertNames(text []byte) []byte {
	codes := len(w.layouts) > 0 && w.plain == 0 // then the dtype in the config is the one in which programs compute
	return dtypeOf().ReplaceAllFunc(text, func(found []byte) []byte {
		parts := dtypeOf().FindSubmatch(found)
		from := dtypeNames[string(parts[2])]
		d := w.dtypes[from]
		if w.stored[from] == 0 && !w.converted[from] && !codes {
			d = w.conversions[from]
		}
		to, ok := torchtype.OfLoaded(d.String())
		if !ok || w.plain == 0 && len(w.layouts) == 0 && w.rounds(d) && !w.rounds(from) {
			return found
		}
		return slices.Concat(parts[1], []byte(to.Name), []byte{'"'})
	})
}

// noteConfigDType notes that the config.json that a copy takes over has a dtype that no tensor of the copy has, and that cannot
// represent all of their numbers, such as the dtype of a variant that was not copied. There is no note for a quantised model,
// because programs only compute in the dtype of its config.
func (w *copyJob) noteConfigDType(note func(text string)) {
	if w.config != nil || !slices.Contains(w.side, "config.json") || mayBeQuantised(w.src) {
		return
	}
	text, err := w.src.Folder.ReadFile("config.json") // an error would already have ended the copy
	if err != nil {
		return
	}
	fields := make(map[string]any)
	_ = json.Unmarshal(pyjson.WithNulls(text), &fields) // if the text is not an object, fields stays empty
	name, ok := fields["dtype"].(string)
	if !ok {
		name, _ = fields["torch_dtype"].(string)
	}
	d := dtypeNames[name]
	has := slices.ContainsFunc(slices.Collect(maps.Values(w.tensors)), func(t safetensors.Tensor) bool { return t.DType() == d })
	if d.Bits() >= 16 && !has && w.rounds(d) {
		note(fmt.Sprintf("config.json says dtype %s, which no tensor of the copy has: libraries that load the copy in that dtype round its numbers; --dtype sets both", name))
	}
}

// rounds reports whether some tensors of the copy have numbers that a dtype does not have, so that libraries round them when
// they load the model in that dtype.
func (w *copyJob) rounds(to safetensors.DType) bool {
	for name, t := range w.tensors {
		if _, copied := w.origin[name]; !copied && w.quantize != "" { // a scale that --quantize has made
			continue
		}
		switch d := t.DType(); d {
		case safetensors.BF16, safetensors.F16, safetensors.F32, safetensors.F64:
			if d != to && d.Bits() >= to.Bits() { // BF16 and F16 are equally wide, and each has numbers that the other has not
				return true
			}
		}
	}
	return false
}

// withMembers returns a JSON object with the members of another object added at its end, in lines
// of their own.
func withMembers(text, more []byte) []byte {
	start := bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(text), []byte("}")))
	var b bytes.Buffer
	if err := json.Indent(&b, more, "", "  "); err != nil {
		return text
	}
	comma := ","
	if string(start) == "{" {
		comma = ""
	}
	return slices.Concat(start, []byte(comma), bytes.TrimSpace(b.Bytes())[1:], []byte{'\n'})
}

// A resizing is a change of the size of the vocabulary. It is zero if the size stays.
type resizing struct{ from, to int }

// resizeConfig sets vocab_size in a config.json, and in the config of its language model, to the new number of rows of
// the embeddings.
func (r resizing) resizeConfig(text []byte) ([]byte, error) {
	found := false
	changed, err := modelconfig.Change(pyjson.WithStrings(text), nil, func(fields map[string]json.RawMessage) (bool, error) {
		var size *int
		if value, ok := fields[modelconfig.Vocabulary]; ok {
			if err := json.Unmarshal(value, &size); err != nil {
				return false, err
			}
		}
		switch {
		case size == nil:
			return false, nil
		case *size != r.from:
			return false, fmt.Errorf("vocab_size is %d, but the embeddings have %d rows, and %d with the adapter", *size, r.from, r.to)
		}
		fields[modelconfig.Vocabulary], found = json.RawMessage(strconv.Itoa(r.to)), true
		return true, nil
	})
	if err == nil && !found {
		err = fmt.Errorf("it has no vocab_size to be changed from %d to %d", r.from, r.to)
	}
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, changed, "", "  "); err != nil {
		return nil, err
	}
	return append(pyjson.WithWords(b.Bytes()), '\n'), nil
}
