package quant

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/parallel"
	"github.com/gosafetensors/safetensors/internal/prefix"
)

// Dequantize returns the tensors that a quantised checkpoint represents. Each quantised tensor
// becomes a lazy F32 tensor with the name, the shape and the orientation that it has in the
// framework's model without quantisation. Experts of Llama 4 are separate matrices only in a
// quantised checkpoint: all those of a layer become two tensors, unless some are missing, as in a
// single shard. The other tensors are returned unchanged. Scales, zero points and other parts are left out.
//
// config is the content of config.json or hf_quant_config.json, or of a file's metadata
// _quantization_metadata. If it is nil, or has no quantization_config, names, dtypes and shapes
// determine the layout; if two layouts fit, that is an error.
//
// The result is right, or there is an error. The error wraps [errors.ErrUnsupported] if the config
// has a key that this package does not know, if an unknown tensor stands next to a quantised one,
// or if tensors look quantised in a layout that this package does not read. Without a config, a
// model in which nothing is quantised is returned unchanged. If the config names a method that no
// tensor uses, that is an error.
//
// Neither argument is modified. Errors, including those of reading the results, name the tensor and
// the rule that it breaks.
func Dequantize(tensors map[string]safetensors.Tensor, config []byte) (map[string]safetensors.Tensor, error) {
	c, err := parseConfig(config)
	if err != nil {
		return nil, prefix.Add(err)
	}
	return prefix.Added(dequantize(tensors, c))
}

// A Layout describes how a tensor is quantised.
type Layout struct {
	Method string // value of quant_method, such as "fp8" or "gptq"; "mlx" for MLX
	Bits   int    // bits of a value; 0 for a tensor that no result needs
}

// String returns the method and the bits: "gptq, 4 bits".
func (l Layout) String() string {
	if l.Bits == 0 {
		return l.Method
	}
	return fmt.Sprintf("%s, %d bits", l.Method, l.Bits)
}

// Layouts returns the layout of every name that belongs to a quantised tensor. These are
//
//   - the stored tensors from which Dequantize computes numbers: values, scales, zero points and
//     other parts,
//   - the results of Dequantize, which may have the name of their values,
//   - with Bits 0, the tensors that no result needs, and that Dequantize leaves out: scales of
//     inputs and caches, markers.
//
// So if the map has the name of a stored tensor, that tensor belongs to a quantised one. If the map
// has the name of a tensor in the result of Dequantize, that tensor was quantised. All other
// tensors are plain.
//
// Errors are those of Dequantize, except for those about shapes and data. Layouts reads markers,
// and stored shapes if the bits follow only from them.
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
	all := make(map[string]Layout, 3*len(modules))
	for name := range tensors {
		if _, ok := rest[name]; !ok { // then modules[0] exists: without modules, rest has every tensor
			all[name] = Layout{Method: cmp.Or(c.named, modules[0].layout.methods[0])}
		}
	}
	for _, m := range modules {
		if m.findBits(); m.bits == 0 {
			m.layout.lay(m)
		}
		l := Layout{cmp.Or(c.named, m.layout.methods[0]), m.bits}
		all[m.result()] = l
		for r := range m.tensor {
			if r != marker {
				all[m.name(r)] = l
			}
		}
	}
	for _, e := range separated(c, modules, func(name string) bool { return all[name].Bits > 0 || rest[name].DType() != 0 }) {
		e.joinLayouts(all, tensors)
	}
	return all, nil
}

func dequantize(tensors map[string]safetensors.Tensor, c *config) (map[string]safetensors.Tensor, error) {
	modules, rest, err := findModules(tensors, c)
	if err != nil {
		return nil, err
	}
	readShapes(modules)
	plain := make([]safetensors.Tensor, len(modules))
	why, twice := make([]error, len(modules)), map[string]error{}
	err = parallel.Do(readers, int64(len(modules)), func(i int64) (err error) {
		plain[i], err = modules[i].build()
		if c.skip != nil && !errors.As(err, new(readError)) {
			why[i], err = err, nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	for i, m := range modules {
		name := m.result()
		if why[i] != nil {
			c.skip(name, why[i])
			continue
		}
		if _, ok := rest[name]; ok {
			err := fmt.Errorf("tensor %s: the result of %s has the same name", quote(name), quote(m.name(values)))
			if c.skip == nil {
				return nil, err
			}
			twice[name] = err
		}
		rest[name] = plain[i]
	}
	for _, name := range slices.Sorted(maps.Keys(twice)) {
		c.skip(name, twice[name])
		delete(rest, name)
	}
	for _, e := range separated(c, modules, func(name string) bool { return rest[name].DType() != 0 }) {
		if err := e.join(rest); err != nil && c.skip == nil {
			return nil, err
		} else if err != nil {
			e.leaveOut(rest, c.skip, err)
		}
	}
	return rest, nil
}
