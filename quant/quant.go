package quant

import (
	"cmp"
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
// config is the content of config.json or hf_quant_config.json, or of a file's metadata
// _quantization_metadata. With nil, and with a config that has no quantization_config,
// names, dtypes and shapes decide; where two layouts fit, that is an error.
//
// A result is right, or an error. What the config or the tensors next to a quantised one
// say and this package does not know is an error wrapping [errors.ErrUnsupported]; so are
// tensors that look quantised in a layout that it does not read. Without a config, a model
// in which nothing is quantised is returned as it is; a config that names a method which no
// tensor has is an error.
//
// Neither argument is modified. Errors name the tensor and the rule that it breaks;
// those of reading the results do, too.
func Dequantize(tensors map[string]safetensors.Tensor, config []byte) (map[string]safetensors.Tensor, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(dequantize(tensors, c))
}

// A Layout is how a tensor is quantised.
type Layout struct {
	Method string // as in quant_method: "fp8", "gptq"; "mlx" for MLX
	Bits   int    // of a value; 0 for a tensor that no value needs
}

// String returns the method and the bits: "gptq, 4 bits".
func (l Layout) String() string {
	if l.Bits == 0 {
		return l.Method
	}
	return fmt.Sprintf("%s, %d bits", l.Method, l.Bits)
}

// Layouts returns the layout of every name that has to do with quantisation. These are
//
//   - the tensors that Dequantize makes numbers of: values, scales, zero points and the like,
//   - its results, which may have the name of their values,
//   - with Bits 0, the tensors that it leaves out, though no result needs them: scales of
//     inputs and caches, markers.
//
// So a name in tensors is a part of something quantised if the map has it, and a name in
// the result of Dequantize is a quantised tensor if the map has it. The others are plain.
//
// Errors are those of Dequantize, but for what it finds wrong in shapes and data. Layouts
// reads markers, and stored shapes if only they tell the bits.
func Layouts(tensors map[string]safetensors.Tensor, config []byte) (map[string]Layout, error) {
	return prefix.Added(layoutsOf(tensors, config))
}

func layoutsOf(tensors map[string]safetensors.Tensor, config []byte) (_ map[string]Layout, err error) {
	defer catch(&err)
	c, err := parseConfig(config)
	if err != nil {
		return nil, err
	}
	modules, rest, err := findModules(tensors, c)
	if err != nil {
		return nil, err
	}
	of := make(map[string]Layout, 3*len(modules))
	for name := range tensors {
		if _, ok := rest[name]; !ok { // there are modules
			of[name] = Layout{Method: cmp.Or(c.named, modules[0].layout.methods[0])}
		}
	}
	for _, m := range modules {
		if m.findBits(); m.bits == 0 {
			m.layout.lay(m)
		}
		l := Layout{cmp.Or(c.named, m.layout.methods[0]), m.bits}
		of[m.result()] = l
		for r := range m.tensor {
			if r != marker {
				of[m.name(r)] = l
			}
		}
	}
	return of, nil
}

func dequantize(tensors map[string]safetensors.Tensor, c *config) (map[string]safetensors.Tensor, error) {
	modules, rest, err := findModules(tensors, c)
	if err != nil {
		return nil, err
	}
	readShapes(modules)
	plain := make([]safetensors.Tensor, len(modules))
	err = parallel.Do(readers, int64(len(modules)), func(i int64) (err error) {
		plain[i], err = modules[i].build()
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
