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

// A conversion is what cp does to the dtypes of tensors.
type conversion struct {
	plan    *plan
	results map[string]bool         // of --dequantize
	parts   map[string]quant.Layout // of quantised tensors: no conversion changes them

	left   []string                                // out by --dequantize: no value needs them
	kept   int                                     // parts that another dtype was asked for
	dtypes map[safetensors.DType]safetensors.DType // that were converted, to which
	from   map[string]safetensors.Tensor           // what was converted, by the new name
	counts map[string]*convert.Count               // by the new name
}

// newConversion prepares the conversion of a source, whose results are those of
// --dequantize.
func newConversion(p *plan, src *source.Checkpoint, results []string) (c *conversion, err error) {
	c = &conversion{
		plan: p, results: setOf(results, same), dtypes: make(map[safetensors.DType]safetensors.DType),
		from: make(map[string]safetensors.Tensor), counts: make(map[string]*convert.Count),
	}
	if len(p.convert) > 0 && p.dequantize == 0 {
		c.parts, err = quantisedParts(src)
	}
	return c, err
}

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

// target returns the dtype that a tensor gets.
func (c *conversion) target(name string, d safetensors.DType) safetensors.DType {
	if c.results[name] {
		d = c.plan.dequantize
	}
	to, ok := c.plan.convert[d]
	if !ok || to == d {
		return d
	}
	if _, part := c.parts[name]; part {
		c.kept++
		return d
	}
	c.dtypes[d] = to
	return to
}

// apply converts a tensor of the source, which gets a new name.
func (c *conversion) apply(name, renamed string, t safetensors.Tensor) (safetensors.Tensor, error) {
	to := c.target(name, t.DType())
	if to == t.DType() {
		return t, nil
	}
	c.from[renamed] = t
	t, err := t.Convert(to)
	if err != nil {
		err = fmt.Errorf("tensor %q: %w", name, term.Bare(err))
	}
	return t, err
}

// count has converted tensors counted that are still among those to write. Nothing can tell
// after that that two of them share their data.
func (c *conversion) count(tensors map[string]safetensors.Tensor) error {
	left := int64(blocks.Most)
	for name, from := range c.from {
		t, ok := tensors[name]
		if left -= from.Size(); left < 0 {
			return nil
		}
		if !ok {
			continue
		}
		counted, count, err := convert.Counted(from, t.DType())
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, term.Bare(err))
		}
		tensors[name], c.counts[name] = counted, count
	}
	return nil
}

// notes returns what is to be said after the copy.
func (c *conversion) notes() (notes []string) {
	if n := len(c.left); n > 0 {
		notes = append(notes, fmt.Sprintf("%s that no value needs, such as %s, left out", term.Plural(n, "tensor"), term.Name(c.left[0])))
	}
	if c.kept > 0 {
		notes = append(notes, fmt.Sprintf("%s of quantised tensors kept the dtype; --dequantize writes the numbers", term.Plural(c.kept, "part")))
	}
	const most = 10
	said, more := 0, 0
	for _, name := range slices.Sorted(maps.Keys(c.counts)) {
		n := c.counts[name].Total()
		switch {
		case n == 0:
		case said == most:
			more++
		default:
			said++
			notes = append(notes, fmt.Sprintf("tensor %s: %s became infinite", term.Name(name), term.Plural(int(n), "value")))
		}
	}
	if more > 0 {
		notes = append(notes, fmt.Sprintf("so did values of %s", term.Plural(more, "other tensor")))
	}
	return notes
}
