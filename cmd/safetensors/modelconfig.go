package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
)

// quantConfigs are the files that say how the weights next to them are quantised: those
// of quant.FindConfig, and those that GPTQ and AWQ wrote.
var quantConfigs = []string{"config.json", "hf_quant_config.json", "quantize_config.json", "quant_config.json"}

// newConfig returns the config.json for a copy of src: with another
// quantization_config, or without one if that is nil, and with the dtype of what was
// dequantised, if that is not 0. It returns nil if src has no config.json.
func newConfig(src *source.Checkpoint, quantisation []byte, dequantised safetensors.DType) ([]byte, error) {
	text, err := src.Folder.ReadFile("config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	config := map[string]json.RawMessage{}
	if err := json.Unmarshal(toJSON(text), &config); err != nil {
		return nil, fmt.Errorf("config.json of %s: %w", source.Shown(src.Name), err)
	}
	if err := unquantise(config, dequantised); err != nil {
		return nil, fmt.Errorf("config.json of %s: %w", source.Shown(src.Name), err)
	}
	if quantisation != nil {
		if err := json.Unmarshal(quantisation, &config); err != nil {
			return nil, err
		}
	}
	text, err = json.MarshalIndent(config, "", "  ")
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

// unquantise removes the quantization_config of a model, and that of the language model in
// it.
func unquantise(config map[string]json.RawMessage, dequantised safetensors.DType) (err error) {
	language := map[string]json.RawMessage{}
	if json.Unmarshal(config["text_config"], &language) == nil && len(language) > 0 {
		unquantiseOne(language, dequantised)
		config["text_config"], err = json.Marshal(language)
	}
	unquantiseOne(config, dequantised)
	return err
}

// unquantiseOne also sets the dtype that transformers loads a model in, where there is
// one: it would round what was dequantised.
func unquantiseOne(config map[string]json.RawMessage, dequantised safetensors.DType) {
	for _, key := range []string{"quantization_config", "compression_config", "quantization"} {
		delete(config, key)
	}
	torch, ok := torchNames[dequantised]
	for _, key := range []string{"dtype", "torch_dtype"} {
		var set string
		if ok && json.Unmarshal(config[key], &set) == nil && set != "" {
			config[key] = json.RawMessage(`"` + torch + `"`)
		}
	}
}

// torchNames are the names of PyTorch for the dtypes of --dequantize.
var torchNames = map[safetensors.DType]string{safetensors.BF16: "bfloat16", safetensors.F16: "float16", safetensors.F32: "float32"}
