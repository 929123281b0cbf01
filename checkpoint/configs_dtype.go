package checkpoint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/torchtype"
)

// loadedDType returns the dtype to which a config refers by this name. ok is false if programs do not load models in
// this dtype.
func loadedDType(name string) (d safetensors.DType, ok bool) {
	named, _ := torchtype.Of(strings.TrimPrefix(name, "torch."))
	loaded, ok := torchtype.OfLoaded(named.Safetensors)
	return d, ok && d.UnmarshalText([]byte(loaded.Safetensors)) == nil
}

// judgeDType notes the dtype in the config if no tensor has it and converting a tensor to it would round an element.
// Then programs that convert to this dtype get different numbers from programs that do not. judgeDType converts only
// tensors of at most 1 MiB, up to 16 MiB in all.
func (d *directory) judgeDType(config *modelConfig, s *set) error {
	named, _ := config.DType.(string)
	if named == "" {
		named, _ = config.TorchDType.(string)
	}
	want, known := loadedDType(named)
	if !known || config.Quantization != nil || config.MLX != nil || d.hasDType(want) {
		return nil
	}
	files := make(map[string][]string)
	left := 16 << 20
	for _, name := range sortedNames(s.where) {
		i, _ := d.info(s, name)
		size := i.dtype.Bits() / 8
		for _, n := range i.shape {
			size *= n
		}
		if !isFloat(i.dtype) || holds(want, i.dtype) || size > min(left, 1<<20) {
			continue
		}
		left -= size
		files[s.where[name]] = append(files[s.where[name]], name)
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		name, err := d.rounded(file, files[file], want)
		if err != nil {
			return err
		}
		if name != "" {
			i, _ := d.info(s, name)
			d.noteConfig(s, name, fmt.Sprintf("dtype %s, but no tensor has it, and it rounds numbers: %s is %v", named, quoted(name), i.dtype))
			return nil
		}
	}
	return nil
}

// hasDType reports whether any tensor in the directory has this dtype. Tensors of variants count, because the config
// may belong to a variant.
func (d *directory) hasDType(want safetensors.DType) bool {
	for _, s := range d.sets {
		for name := range s.where {
			if i, _ := d.info(s, name); i.dtype == want {
				return true
			}
		}
	}
	return false
}

// rounded returns the first of these tensors of a file that has a number which the given dtype cannot represent, or ""
// if there is none.
func (d *directory) rounded(file string, names []string, to safetensors.DType) (string, error) {
	f, done, err := d.open(file)
	if err != nil {
		return "", err
	}
	defer done()
	for _, name := range names {
		t, err := f.Tensor(name)
		if err != nil {
			return "", changed(file, err)
		}
		narrow, err := t.Convert(to)
		if err != nil {
			return "", err
		}
		if equal, err := equalNumbers(t, narrow); err != nil || !equal {
			return name, err
		}
	}
	return "", nil
}

// holds reports whether the float dtype wide represents all numbers of the float dtype narrow.
func holds(wide, narrow safetensors.DType) bool {
	return wide == narrow || wide == safetensors.F64 || wide == safetensors.F32 && narrow != safetensors.F64
}
