package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
)

// quantConfigs are the files that say how the weights next to them are quantised: those
// of quant.FindConfig, and those that GPTQ and AWQ wrote.
var quantConfigs = []string{"config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json"}

// changeConfig makes the config.json of the copy: with another quantization_config, or
// without one, and with the dtypes of what was converted. There is none if the source has
// none.
func (w *copyJob) changeConfig() error {
	if !w.requantizes() && len(w.conversions) == 0 {
		return nil
	}
	text, err := w.src.Folder.ReadFile("config.json")
	if err == nil {
		if w.config, err = w.newConfig(text); err != nil {
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

func (w *copyJob) newConfig(text []byte) ([]byte, error) {
	config := map[string]json.RawMessage{}
	if err := json.Unmarshal(toJSON(text), &config); err != nil {
		return nil, err
	}
	if !w.rewrite(config, true, maxNesting) {
		return text, nil
	}
	if w.quantisation != nil {
		if err := json.Unmarshal(w.quantisation, &config); err != nil {
			return nil, err
		}
	}
	text, err := json.MarshalIndent(config, "", "  ")
	return append(fromJSON(text), '\n'), err
}

// Python writes NaN and infinities as words that JSON does not have. Package json sees them
// as strings that start with U+FDD0, which is no character.
var (
	notJSON = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|-?Infinity|NaN`) // and strings
	marked  = regexp.MustCompile(`"\\ufdd0(-?Infinity|NaN)"`)
)

func toJSON(text []byte) []byte {
	if json.Valid(text) {
		return text
	}
	return notJSON.ReplaceAllFunc(text, func(token []byte) []byte {
		if token[0] == '"' {
			return token
		}
		return fmt.Appendf(nil, `"\ufdd0%s"`, token)
	})
}

func fromJSON(text []byte) []byte { return marked.ReplaceAll(text, []byte("$1")) }

// quantisationKeys are what a config.json calls the quantisation of its weights.
var quantisationKeys = []string{"quantization_config", "compression_config", "quantization"}

// maxNesting is how deep the configs of models in models are.
const maxNesting = 8

// rewrite sets the dtypes that transformers loads a model in, and those in it, to what they were
// converted to: it would convert them back. Where the quantisation changes, it removes that of the
// config itself, and of the language model in it, and names the dtype of what was dequantised.
func (w *copyJob) rewrite(config map[string]json.RawMessage, own bool, nesting int) (changed bool) {
	for _, key := range []string{"dtype", "torch_dtype"} {
		var set string
		if json.Unmarshal(config[key], &set) != nil || set == "" {
			continue
		}
		d := dtypeNames[set]
		to := cmp.Or(w.dtypes[d], d)
		if own && w.plain != 0 {
			to = cmp.Or(w.conversions[w.plain], w.plain)
		}
		if torch, ok := torchNames[to]; ok && to != d {
			config[key], changed = json.RawMessage(`"`+torch+`"`), true
		}
	}
	if own && w.requantizes() {
		changed = true
		for _, key := range quantisationKeys {
			delete(config, key)
		}
	}
	for key, text := range config {
		nested := map[string]json.RawMessage{}
		if nesting == 0 || slices.Contains(quantisationKeys, key) || json.Unmarshal(text, &nested) != nil {
			continue
		}
		if w.rewrite(nested, nesting == maxNesting && key == "text_config", nesting-1) {
			config[key], _ = json.Marshal(nested) // of valid JSON
			changed = true
		}
	}
	return changed
}

// torchNames are the names of PyTorch for the dtypes that models are loaded in.
var torchNames = map[safetensors.DType]string{
	safetensors.BF16: "bfloat16", safetensors.F16: "float16", safetensors.F32: "float32", safetensors.F64: "float64",
}
