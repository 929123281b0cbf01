package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/pyjson"
	"github.com/gosafetensors/safetensors/quant"
)

// A notLoaded is the error of --quantize if no program would load the result.
type notLoaded string

func (e notLoaded) Error() string { return "--quantize: " + string(e) }

// refuseQuantised returns a notLoaded for a source whose library does not load weights in the format of compressed-tensors:
// peft takes codes for numbers, diffusers refuses the config, and timm refuses the names of the scales.
func refuseQuantised(src *source.Checkpoint) error {
	for _, one := range src.Sources() {
		if merge.IsAdapter(one.Order) {
			return notLoaded(fmt.Sprintf("%s is an adapter, and peft does not load quantised ones; merge --lora merges it into a model", storage.Shown(one.Name)))
		}
		text, err := one.Folder.ReadFile("config.json")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%s: %w", storage.Shown(one.Name), term.Bare(err))
		}
		var config modelconfig.Library
		if err != nil || json.Unmarshal(pyjson.WithNulls(text), &config) != nil {
			continue
		}
		library, class := "diffusers", config.Class
		if name := config.Timm(); name != "" {
			library, class = "timm", name
		}
		if class != "" {
			return notLoaded(fmt.Sprintf("%s is a model of %s (%s), which does not load the format of compressed-tensors", storage.Shown(one.Name), library, term.Name(class)))
		}
	}
	return nil
}

// quantiseWeights quantises the tensors that --targets selects, or the usual ones without
// --targets.
func (w *copyJob) quantiseWeights() error {
	recipe := quant.Recipe{Scheme: w.quantize}
	if len(w.targets) > 0 {
		names := w.aimed
		if names == nil {
			var err error
			if names, err = w.targeted.Of(slices.Sorted(maps.Keys(w.tensors))); err != nil {
				return err
			}
		}
		recipe.Targets = func(name string, _ safetensors.Tensor) bool {
			_, selected := slices.BinarySearch(names, name)
			return selected
		}
	}
	tensors, config, err := quant.Quantize(w.tensors, recipe)
	if err != nil {
		return fmt.Errorf("--quantize %s: %s: %w", w.quantize, storage.Shown(w.src.Name), term.Bare(err))
	}
	w.countUnquantised(tensors, config, recipe)
	w.countIdle(tensors)
	w.dropTied(tensors)
	w.read += w.readAgain(tensors)
	w.tensors, w.quantisation = tensors, config
	return nil
}

// readAgain returns how many bytes the job reads in addition to one pass over the source. Each tensor
// that is computed from a weight, such as its codes or its scales, takes a pass of its own over the
// weight.
func (w *copyJob) readAgain(quantised map[string]safetensors.Tensor) (bytes int64) {
	passes := make(map[string]int64) // by the name of the weight
	for name := range quantised {
		if i := strings.LastIndex(name, ".weight"); i >= 0 && !strings.HasSuffix(name, "_shape") { // a weight_shape is not computed
			passes[name[:i+len(".weight")]]++
		}
	}
	for name, n := range passes {
		if _, ok := w.tensors[name]; ok {
			bytes += (n - 1) * w.src.Tensors[w.origin[name]].Size()
		}
	}
	return bytes
}

// An unquantised counts weights that --quantize leaves unchanged.
type unquantised struct {
	n     int
	first string  // the first of their names
	share float64 // number of their elements divided by the number of all elements
}

func (u *unquantised) add(name string, t safetensors.Tensor, all int64) {
	u.n++
	if u.first == "" || name < u.first {
		u.first = name
	}
	u.share += float64(numbers.Count(t)) / float64(max(all, 1))
}

// countUnquantised counts the weights that --quantize leaves unchanged because they do not have the
// shape of its scheme. A new config names them, and others that the recipe does not select. Without
// --targets, it also counts those of modules that the scheme does not know, such as convolutions.
func (w *copyJob) countUnquantised(quantised map[string]safetensors.Tensor, config []byte, recipe quant.Recipe) {
	var file struct {
		Section struct{ Ignore []string } `json:"quantization_config"`
	}
	if json.Unmarshal(config, &file) != nil { // it fails if there is no new config
		return
	}
	all := int64(0)
	for _, t := range w.tensors {
		all += numbers.Count(t)
	}
	target := quant.Recipe{Scheme: w.quantize, Targets: func(string, safetensors.Tensor) bool { return true }}
	for name, t := range w.tensors {
		if _, named := slices.BinarySearch(file.Section.Ignore, strings.TrimSuffix(name, ".weight")); !named {
			if _, same := quantised[name]; same && len(w.targets) == 0 && len(t.Shape()) > 1 && t.DType().IsFloat() && quantised[name].DType() == t.DType() {
				w.others.add(name, t, all)
			}
			continue
		}
		if !fits(strings.TrimSuffix(name, ".weight")+".weight", t.DType(), recipe) { // fused experts have other names
			continue
		}
		switch len(t.Shape()) {
		case 3:
			w.fused.add(name, t, all)
		case 2:
			if _, _, err := quant.Quantize(map[string]safetensors.Tensor{name: t}, target); err != nil {
				w.narrow.add(name, t, all)
			}
		}
	}
}

// countIdle counts the quantised weights that transformers 5.24 loads but cannot compute with. transformers splits the inputs
// of fp8-block into groups of 128, and makes BF16 numbers of the codes of nvfp4 and mxfp4, whatever the dtype of the model.
func (w *copyJob) countIdle(quantised map[string]safetensors.Tensor) {
	for name, t := range w.tensors {
		if _, ok := quantised[name+"_scale"]; !ok {
			continue
		}
		switch w.quantize {
		case quant.FP8Block:
			if t.Shape()[1]%128 != 0 {
				w.idle.add(name, t, 1)
			}
		case quant.NVFP4, quant.MXFP4:
			if t.DType() != safetensors.BF16 {
				w.idle.add(name, t, 1)
			}
		}
	}
}

// fits reports whether a recipe quantises a matrix with this name and dtype, if its columns are whole groups.
func fits(name string, d safetensors.DType, recipe quant.Recipe) bool {
	const side = 128 // whole groups and blocks of all schemes
	matrix, err := safetensors.NewTensor(d, []int{side, side}, make([]byte, side*side*d.Bits()/8))
	if err == nil {
		_, _, err = quant.Quantize(map[string]safetensors.Tensor{name: matrix}, recipe)
	}
	return err == nil
}
