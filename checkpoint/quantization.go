package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pyjson"
	"github.com/gosafetensors/safetensors/quant"
)

// judgeQuantization compares the quantization of the config with the tensors.
func (d *directory) judgeQuantization(config *modelConfig, s *set) error {
	if config.Type == "" && config.Class == "" && config.Quantization == nil || !config.judgesQuantization() {
		return nil
	}
	if d.judgeNoMethod(config, s) {
		return nil
	}
	tensors := make(map[string]safetensors.Tensor, len(s.where))
	marked := false
	for name, file := range s.where {
		t, err := d.lazy(name, file)
		if err != nil {
			return nil // no Go slice has elements of this dtype, so package quant cannot judge it
		}
		tensors[name] = t
		marked = marked || d.heads[file].metadata["_quantization_metadata"] != ""
	}
	text, err := quant.FindConfig(func(name string) ([]byte, error) {
		switch {
		case name == configFile:
			return lastValues(config.text), nil
		case !d.has(name):
			return nil, fs.ErrNotExist
		}
		return readText(d.in, d.path(d.at(name)), maxConfig)
	})
	if err != nil || marked {
		return nil
	}
	if text == nil && (config.Quantization != nil || d.has("quantize_config.json") || d.has("quant_config.json")) {
		return nil // package quant does not know the method of quantization
	}
	if name := packed(tensors); text == nil && name != "" {
		d.note(Config, name, fmt.Sprintf("%s has no quantization_config, but the tensor %s of %s is packed by GPTQ or AWQ: programs set the weight at random", quoted(d.at(configFile)), quoted(name), quoted(s.where[name])), s.where[name], d.at(configFile))
		return nil
	}
	plain, err := quant.Dequantize(tensors, text)
	var at interface{ Tensor() string } // an error of package quant that is about a tensor
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil && text != nil:
		tensor := ""
		if errors.As(err, &at) && s.where[at.Tensor()] != "" {
			tensor = at.Tensor()
		}
		d.note(Config, tensor, fmt.Sprintf("the quantization_config of %s contradicts the tensors: %s", quoted(d.at(configFile)), cut(bare(err).Error())), d.fileOf(s, tensor), d.at(configFile))
	case err == nil && text == nil && len(plain) < len(tensors):
		for _, name := range sortedNames(s.where) {
			if _, kept := plain[name]; !kept {
				d.note(Config, name, fmt.Sprintf("%s has no quantization_config, but the tensor %s of %s belongs to a quantised one", quoted(d.at(configFile)), quoted(name), quoted(s.where[name])), s.where[name], d.at(configFile))
				break
			}
		}
	}
	return nil
}

// judgeNoMethod notes a quantization_config without settings: transformers does not open such a model. It reports
// whether it noted a finding.
func (d *directory) judgeNoMethod(config *modelConfig, s *set) bool {
	var settings map[string]any
	if len(config.Architectures) == 0 || config.MLX != nil || config.Quantization == nil ||
		json.Unmarshal(pyjson.WithNulls(config.Quantization), &settings) != nil || settings == nil || len(settings) > 0 {
		return false
	}
	d.noteConfig(s, "", "quantization_config {}, which names no method")
	return true
}

// packed returns the first tensor that GPTQ or AWQ has packed into integers, or "". Such a tensor needs a config, because
// nothing else specifies the number of bits of its codes.
func packed(tensors map[string]safetensors.Tensor) string {
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		module, is := strings.CutSuffix(name, ".qweight")
		_, scaled := tensors[module+".scales"]
		if is && scaled && tensors[name].DType() == safetensors.I32 {
			return name
		}
	}
	return ""
}

// methods are the methods of quantization that package quant reads. Others are not judged.
var methods = []string{"auto-round", "awq", "bitsandbytes", "compressed-tensors", "fbgemm_fp8", "fp8", "gptq", "modelopt", "mxfp4", "mxfp8"}

// judgesQuantization reports whether package quant reads the quant_method of the config, or the config has none. A config
// of compressed-tensors with a kv_cache_scheme may quantise no tensors.
func (m *modelConfig) judgesQuantization() bool {
	var settings struct {
		Method string         `json:"quant_method"`
		Groups map[string]any `json:"config_groups"`
		Cache  any            `json:"kv_cache_scheme"`
	}
	_ = unmarshal(m.Quantization, &settings)
	if settings.Method == "compressed-tensors" && settings.Cache != nil && len(settings.Groups) == 0 {
		return false
	}
	return settings.Method == "" || slices.Contains(methods, settings.Method)
}

// lazy returns a tensor whose file is opened only when its data is read. Few files are opened, because package quant
// reads only the data of tensors that describe others, such as zero points.
func (d *directory) lazy(name, file string) (safetensors.Tensor, error) {
	i := d.heads[file].tensors[name]
	return safetensors.NewTensorFunc(i.dtype, i.shape, func(dst []byte) error {
		f, done, err := d.open(file)
		if err != nil {
			return err
		}
		defer done()
		t, err := f.Tensor(name)
		if err != nil {
			return err
		}
		if t.Size() != int64(len(dst)) {
			return changed(file, errors.New("another size"))
		}
		_, err = safetensors.Append(dst[:0], t)
		return err
	})
}

// plain reports whether all tensors are floats or buffers, so that none belongs to a quantised weight.
func (d *directory) plain(s *set) bool {
	for name := range s.where {
		if i, _ := d.info(s, name); !isFloat(i.dtype) && !isBuffer(name) {
			return false
		}
	}
	return true
}
