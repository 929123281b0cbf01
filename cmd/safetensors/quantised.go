package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/quant"
)

// openValues opens a source, dequantised if --dequantize asks for that. size is how many bytes
// it has to read.
func (c *command) openValues(name string) (src *source.Checkpoint, size int64, err error) {
	if src, err = c.opener.Open(name); err != nil {
		return nil, 0, err
	}
	size = src.Size()
	if c.values {
		if _, err = dequantize(src); err != nil {
			src.Close()
			return nil, 0, fmt.Errorf("%s: %w", storage.Shown(src.Name), err)
		}
	}
	return src, size, nil
}

// quantMarker is the metadata by which ComfyUI marks quantised layers.
const quantMarker = "_quantization_metadata"

// dequantize replaces the quantised tensors of a source with those that they stand for. What says
// how they are quantised is a config, or that marker. It returns the layouts of its own; those
// without bits no value needs: scales of inputs, markers. Errors do not name the source.
func dequantize(src *source.Checkpoint) (layouts map[string]quant.Layout, err error) {
	config, err := quant.FindConfig(src.Folder.ReadFile)
	if marker, ok := src.Metadata[quantMarker]; ok && config == nil {
		config = []byte(marker)
	} else if ok && err == nil {
		err = fmt.Errorf("%s of ComfyUI in its metadata, though there is a config that says how it is quantised", quantMarker)
	}
	if err == nil {
		layouts, err = quant.Layouts(src.Tensors, config)
	}
	var plain map[string]safetensors.Tensor
	if err == nil {
		plain, err = quant.Dequantize(src.Tensors, config)
	}
	if err != nil {
		return nil, term.Bare(err)
	}
	src.Tensors = plain
	if len(layouts) > 0 {
		src.Metadata = maps.Clone(src.Metadata)
		delete(src.Metadata, quantMarker)
	}
	src.Order = slices.DeleteFunc(src.Order, func(name string) bool {
		_, quantised := layouts[name]
		return quantised
	})
	for _, name := range slices.Sorted(maps.Keys(layouts)) {
		if _, ok := plain[name]; ok {
			src.Order = append(src.Order, name)
		}
	}
	return layouts, nil
}

// quantiseWeights quantises the tensors that --targets selects; without it, the usual ones.
func (w *copyJob) quantiseWeights() error {
	recipe := quant.Recipe{Scheme: w.quantize}
	if len(w.targets) > 0 {
		names, err := w.targeted.Of(slices.Sorted(maps.Keys(w.tensors)))
		if err != nil {
			return err
		}
		recipe.Targets = func(name string, _ safetensors.Tensor) bool {
			_, selected := slices.BinarySearch(names, name)
			return selected
		}
	}
	tensors, config, err := quant.Quantize(w.tensors, recipe)
	if err == nil && len(tensors) == len(w.tensors) { // without a scale
		err = fmt.Errorf("--quantize %s: no tensor of %s is one to be quantised", w.quantize, storage.Shown(w.src.Name))
	}
	w.tensors, w.quantisation = tensors, config
	return err
}

// mayBeQuantised reports whether a source has tensors of dtypes that codes have.
func mayBeQuantised(src *source.Checkpoint) bool {
	return slices.ContainsFunc(src.Order, func(name string) bool {
		switch src.Tensors[name].DType() {
		case safetensors.F8_E4M3, safetensors.U8, safetensors.I8, safetensors.I32, safetensors.U32:
			return len(src.Tensors[name].Shape()) > 1
		}
		return false
	})
}

// hasCodes reports whether some tensors of a source are parts of quantised ones.
func hasCodes(src *source.Checkpoint, names []string) bool {
	if !mayBeQuantised(src) {
		return false
	}
	layouts, err := quantisedParts(src)
	return err == nil && slices.ContainsFunc(names, func(name string) bool { return layouts[name].Method != "" })
}

// noteCodes says how the numbers are shown that tensors of a source are the codes of.
func (c *command) noteCodes(src *source.Checkpoint, names ...string) {
	if !c.values && hasCodes(src, names) {
		c.opener.Note("these are codes and scales of quantised tensors; --dequantize shows the numbers")
	}
}

// A quantisedTotal sums up the quantised tensors of a layout.
type quantisedTotal struct {
	Layout     string `json:"layout"`
	Tensors    int    `json:"tensors"`    // they stand for
	Parameters int64  `json:"parameters"` // of those
}

// quantisedTotals looks for quantised tensors, and dequantises them. Sources that cannot have any
// are not asked for a config.
func quantisedTotals(src *source.Checkpoint) ([]quantisedTotal, error) {
	if !mayBeQuantised(src) {
		return nil, nil
	}
	layouts, err := dequantize(src)
	if err != nil {
		return nil, err
	}
	of := map[string]quantisedTotal{}
	for name, x := range src.Tensors {
		if l, ok := layouts[name]; ok {
			t := of[l.String()]
			of[l.String()] = quantisedTotal{l.String(), t.Tensors + 1, t.Parameters + numbers.Count(x)}
		}
	}
	byLayout := func(a, b quantisedTotal) int { return cmp.Compare(a.Layout, b.Layout) }
	return slices.SortedFunc(maps.Values(of), byLayout), nil
}
