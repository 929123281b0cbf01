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

// judgeDType notes the dtype in the config if converting a tensor to it would round an element. Then programs that
// convert to this dtype get different numbers from programs that do not. If the model has tensors of this dtype,
// judgeDType ignores those that transformers may keep in F32, and does not judge unknown architectures: hybrid models
// store norms and states in F32 on purpose. Without a dtype in the config, it takes the one that transformers takes,
// which is that of the first tensor. It converts only tensors of at most 1 MiB, up to 16 MiB in all.
func (d *directory) judgeDType(config *modelConfig, s *set) error {
	named, _ := config.DType.(string)
	if named == "" {
		named, _ = config.TorchDType.(string)
	}
	said := "dtype " + named
	want, known := loadedDType(named)
	if first, from := d.firstFloat(config, s); named == "" && first != "" {
		want, known, said = from, true, fmt.Sprintf("nothing of dtype, which is then %v as in %s", from, quoted(first))
	}
	if !known || config.Quantization != nil || config.MLX != nil {
		return nil
	}
	mixed, ofVariant := d.hasDType(s, want)
	if ofVariant || mixed && named != "" && config.Type != "" && !isKnown(config.Type) {
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
		if !isFloat(i.dtype) || holds(want, i.dtype) || isBuffer(name) || mixed && mayStayWide(name) || size > min(left, 1<<20) {
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
			text := ", but no tensor has it; loaded in that dtype, numbers would be rounded"
			if mixed {
				text = ", which rounds numbers of some tensors"
			}
			d.noteConfig(s, name, fmt.Sprintf("%s%s: %s is %v", said, text, quoted(name), i.dtype))
			return nil
		}
	}
	return nil
}

// firstFloat returns the first tensor in the first file of a model of transformers, and its dtype. It returns "" for files
// of torch.save, in which tensors have another order.
func (d *directory) firstFloat(config *modelConfig, s *set) (first string, dtype safetensors.DType) {
	if config.Type == "" || len(config.Architectures) == 0 || config.DType != nil || config.TorchDType != nil || s.torch {
		return "", dtype
	}
	file := d.fileOf(s, "")
	for name := range s.where {
		if i, _ := d.info(s, name); s.where[name] == file && isFloat(i.dtype) && (first == "" || name < first) {
			first, dtype = name, i.dtype
		}
	}
	return first, dtype
}

// hasDType reports whether any tensor of a set has this dtype, and whether one of a variant, or of files in the other
// format, has it. The config may belong to these.
func (d *directory) hasDType(s *set, want safetensors.DType) (has, other bool) {
	for _, of := range d.sets {
		for name := range of.where {
			if i, _ := d.info(of, name); i.dtype == want {
				has, other = has || of == s, other || of.variant != s.variant || of.torch != s.torch
				break
			}
		}
	}
	return has, other
}

// wideNames are parts of the names of tensors that transformers keeps in F32 in some models, whatever dtype the config
// specifies: routers, the state of Mamba, the output of a block of T5.
var wideNames = []string{"gate.weight", "correction_bias", "expert_bias", "sinks", "dt_bias", "A_log", "mixer.D", ".wo.", "query_tokens", "qformer", "embed_positions", "time_decay", "time_first", "indexer."}

func mayStayWide(name string) bool {
	return slices.ContainsFunc(wideNames, func(part string) bool { return strings.Contains(name, part) })
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
