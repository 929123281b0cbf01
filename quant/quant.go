package quant

import (
	"fmt"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// Dequantize returns the tensors that a quantised checkpoint stands for: each quantised
// one as a lazy F32 tensor, with the name, the shape and the orientation that the
// framework's own model has without quantisation, and the others as they are. Scales,
// zero points and the like are left out.
//
// config is the content of config.json or hf_quant_config.json. With nil, and with a
// config that has no quantization_config, names, dtypes and shapes decide, as far as
// they can.
//
// Neither argument is modified. Errors name the tensor and the rule that it breaks;
// those of reading the results do, too.
func Dequantize(tensors map[string]safetensors.Tensor, config []byte) (map[string]safetensors.Tensor, error) {
	plain, err := dequantize(tensors, config)
	return plain, prefix.Add(err)
}

// Layouts returns the layouts of the quantised tensors, such as "FP8 in blocks" or
// "GPTQ", by the names that they have in the result of Dequantize. It reads nothing; its
// errors are among those of Dequantize.
func Layouts(tensors map[string]safetensors.Tensor, config []byte) (map[string]string, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, prefix.Add(err)
	}
	modules, _, err := findModules(tensors, c)
	if err != nil {
		return nil, prefix.Add(err)
	}
	names := make(map[string]string, len(modules))
	for _, m := range modules {
		names[m.result()] = m.layout.name
	}
	return names, nil
}

func dequantize(tensors map[string]safetensors.Tensor, text []byte) (map[string]safetensors.Tensor, error) {
	c, err := parseConfig(text)
	if err != nil {
		return nil, err
	}
	modules, rest, err := findModules(tensors, c)
	if err != nil {
		return nil, err
	}
	if c.method == compressed {
		for _, m := range modules {
			if m.weights, err = c.weightsOf(m.path(), m.layout.format); err != nil {
				return nil, m.failed(values, err)
			}
		}
	}
	readShapes(modules)
	plain := make([]safetensors.Tensor, len(modules))
	err = parallel.Do(readers, int64(len(modules)), func(i int64) (err error) {
		plain[i], err = build(modules[i], c)
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, m := range modules {
		name := m.result()
		if _, ok := rest[name]; ok {
			return nil, fmt.Errorf("tensor %s: the result of %s has the same name", quote(name), quote(m.name(values)))
		}
		rest[name] = plain[i]
	}
	return rest, nil
}

// readers is how many modules are read concurrently, for the few bytes that their
// shapes need.
const readers = 16
