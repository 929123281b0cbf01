package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/convert"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/quant"
)

// quantisedParts returns the tensors of a source that are parts of quantised ones. It is an
// error if that cannot be known.
func quantisedParts(src *source.Checkpoint) (map[string]quant.Layout, error) {
	configs := make(map[string][]byte)
	for _, one := range src.Sources() {
		config, err := quant.FindConfig(one.Folder.ReadFile)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", storage.Shown(one.Name), term.Bare(err))
		}
		configs[string(config)] = config
	}
	if len(configs) > 1 {
		delete(configs, "") // of a source that has none
	}
	parts := make(map[string]quant.Layout)
	for _, config := range configs {
		layouts, err := quant.Layouts(src.Tensors, config)
		if err != nil {
			return nil, fmt.Errorf("%s: its quantised tensors are not understood, which a conversion would spoil: %w", storage.Shown(src.Name), term.Bare(err))
		}
		maps.Copy(parts, layouts)
	}
	return parts, nil
}

// isQuantised reports whether a tensor is a part of a quantised one, or what it stands for.
func (w *copyJob) isQuantised(name string) bool {
	_, quantised := w.layouts[name]
	return quantised
}

// target returns the dtype that a tensor of the source gets.
func (w *copyJob) target(name string, d safetensors.DType) safetensors.DType {
	quantised := w.isQuantised(name)
	if quantised && w.plain != 0 {
		d = w.plain
	}
	to, ok := w.conversions[d]
	if !ok || to == d {
		return d
	}
	if quantised && w.plain == 0 { // no conversion changes it
		w.kept++
		return d
	}
	w.dtypes[d] = to
	return to
}

// count has converted tensors counted that are still among those to write. Nothing can tell
// after that that two of them share their data.
func (w *copyJob) count() error {
	left := int64(blocks.Most)
	w.counts = make(map[string]*convert.Count)
	for name, t := range w.tensors {
		from := w.src.Tensors[w.origin[name]]
		if from.DType() == t.DType() {
			continue
		}
		if left -= from.Size(); left < 0 {
			return nil
		}
		counted, count, err := convert.Counted(from, t.DType())
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, term.Bare(err))
		}
		w.tensors[name], w.counts[name] = counted, count
	}
	return nil
}

// notes calls note with what to say after the copy.
func (w *copyJob) notes(note func(text string)) {
	var left []string // no value needs them
	for name, l := range w.layouts {
		if w.plain != 0 && l.Bits == 0 {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		note(fmt.Sprintf("%s that no value needs, such as %s, left out", term.Plural(len(left), "tensor"), term.Name(slices.Min(left))))
	}
	if w.kept > 0 {
		note(fmt.Sprintf("%s of quantised tensors kept the dtype; --dequantize writes the numbers", term.Plural(w.kept, "part")))
	}
	const most = 10
	finite := func(name string) bool { return w.counts[name].Total() == 0 }
	infinite := slices.DeleteFunc(slices.Sorted(maps.Keys(w.counts)), finite)
	for _, name := range infinite[:min(len(infinite), most)] {
		note(fmt.Sprintf("tensor %s: %s became infinite", term.Name(name), term.Plural(int(w.counts[name].Total()), "value")))
	}
	if more := len(infinite) - most; more > 0 {
		note(fmt.Sprintf("so did values of %s", term.Plural(more, "other tensor")))
	}
}
