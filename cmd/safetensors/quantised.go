package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/quant"
)

// openValues opens a source by calling open, and dequantises it if --dequantize is set. size is the
// number of bytes that reading all tensors takes.
func (c *command) openValues(name string, open func(name string) (*source.Checkpoint, error)) (src *source.Checkpoint, size int64, err error) {
	if src, err = open(name); err != nil {
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

// quantMarker is the key of the metadata in which ComfyUI describes quantised layers.
const quantMarker = "_quantization_metadata"

// An unreadConfig is an error of reading a config. Then it is unknown whether tensors are
// quantised, and no verb may continue as if they were not.
type unreadConfig struct{ error }

func (e unreadConfig) Unwrap() error { return e.error }

// configsOf returns the configs of a source, or of several sources that were opened as one, each config once. If there is
// none, the result is a single nil config.
func configsOf(src *source.Checkpoint) (all [][]byte, err error) {
	for _, one := range src.Sources() {
		config, err := configOf(one)
		if err != nil && len(src.Sources()) > 1 {
			err = fmt.Errorf("%s: %w", storage.Shown(one.Name), err)
		}
		if err != nil {
			return nil, err
		}
		if config != nil && !slices.ContainsFunc(all, func(other []byte) bool { return bytes.Equal(config, other) }) {
			all = append(all, config)
		}
	}
	if all == nil {
		all = [][]byte{nil}
	}
	return all, nil
}

// withUnreadConfig returns err, the error of finding quantised tensors with a config. If the config is nil, and a
// source has another file that describes its tensors, withUnreadConfig adds advice to move the keys of that file.
func withUnreadConfig(src *source.Checkpoint, config []byte, err error) error {
	if err == nil || config != nil {
		return err
	}
	for _, one := range src.Sources() {
		for _, name := range []string{"quantize_config.json", "quant_config.json"} {
			if _, absent := one.Folder.ReadFile(name); absent == nil {
				return fmt.Errorf("%w; %s is not read: its keys, and quant_method, belong in the quantization_config of config.json", err, name)
			}
		}
	}
	return err
}

// configOf returns the config that describes how the tensors of a source are quantised, or nil if
// there is none. Every error is an unreadConfig.
func configOf(src *source.Checkpoint) ([]byte, error) {
	config, err := quant.FindConfig(src.Folder.ReadFile)
	if err != nil {
		return nil, unreadConfig{term.Bare(err)}
	}
	return config, nil
}

// dequantize replaces the quantised tensors of a source with the tensors that they represent. A
// config or quantMarker describes how they are quantised. dequantize returns the layouts of all
// tensors that belong to them. A layout without bits is that of a tensor that no value needs, such
// as a scale of inputs or a marker. Errors do not name the source.
func dequantize(src *source.Checkpoint) (layouts map[string]quant.Layout, err error) {
	configs, err := configsOf(src)
	if err != nil {
		return nil, err
	}
	if len(configs) > 1 {
		return nil, errors.New("the config.json of one SRC describes other quantised tensors than that of another: dequantise each SRC by itself")
	}
	config := configs[0]
	if marker, ok := src.Metadata[quantMarker]; ok && config == nil {
		config = []byte(marker)
	} else if ok {
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
		return nil, withUnreadConfig(src, config, term.Bare(err))
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

// mayBeQuantised reports whether a source has matrices of dtypes that are used for codes.
func mayBeQuantised(src *source.Checkpoint) bool {
	return slices.ContainsFunc(src.Order, func(name string) bool { return mayBeCodes(src.Tensors[name]) })
}

// mayBeCodes reports whether a tensor has a dtype and a rank that codes of quantised tensors have.
func mayBeCodes(t safetensors.Tensor) bool {
	switch t.DType() {
	case safetensors.F8_E4M3, safetensors.U8, safetensors.I8, safetensors.I32, safetensors.U32:
		return len(t.Shape()) > 1
	}
	return false
}

// hasCodes reports whether some tensors of a source are parts of quantised tensors, as far as their
// layouts are known.
func hasCodes(src *source.Checkpoint, names []string) (bool, error) {
	for _, part := range src.Sources() { // each model has its own config
		if part == src {
			break
		}
		if codes, err := hasCodes(part, part.Order); codes || err != nil {
			return codes, err
		}
	}
	if !mayBeQuantised(src) {
		return false, nil
	}
	layouts, err := quantisedParts(src)
	if errors.As(err, new(unreadConfig)) {
		return false, err
	}
	return err == nil && slices.ContainsFunc(names, func(name string) bool { return layouts[name].Method != "" }), nil
}

// standsFor returns the name of a tensor that matches and that --dequantize would make from the
// quantised tensors of a source. It returns "" if there is none.
func standsFor(src *source.Checkpoint, matches func(name string) bool) string {
	if !mayBeQuantised(src) {
		return ""
	}
	plain := *src
	plain.Order = slices.Clone(src.Order)
	if _, err := dequantize(&plain); err != nil {
		return ""
	}
	for _, name := range plain.Order {
		if _, stored := src.Tensors[name]; !stored && matches(name) {
			return name
		}
	}
	return ""
}

// selected returns names and err, which are the results of Selection.Of. If a pattern matches no
// name, but would match a tensor that dequantising a source makes, selected returns an error with
// advice instead: the advice names the flag that dequantises. The error of a pattern that matches an
// alias is that of orAlias.
func selected(names []string, err error, dequantised bool, advice string, sources ...*source.Checkpoint) ([]string, error) {
	var none *pattern.NoMatch
	err = orAlias(err, sources...)
	if dequantised || !errors.As(err, &none) {
		return names, err
	}
	for _, src := range sources {
		if name := standsFor(src, none.Glob.Matches); name != "" {
			return nil, fmt.Errorf("%s holds %q as codes and scales: %s", storage.Shown(src.Name), name, advice)
		}
	}
	return names, err
}

// showsNumbers is the advice of verbs that read quantised tensors as numbers.
const showsNumbers = "--dequantize shows its numbers"

// noteCodes notes that --dequantize shows the numbers, if some tensors of a source are codes.
func (c *command) noteCodes(src *source.Checkpoint, names ...string) error {
	if c.values {
		return nil
	}
	codes, err := hasCodes(src, names)
	if codes {
		c.opener.Note("these are codes and scales of quantised tensors; --dequantize shows the numbers")
	}
	return err
}

// A quantisedTotal is the total over the quantised tensors of one layout.
type quantisedTotal struct {
	Layout     string `json:"layout"`
	Tensors    int    `json:"tensors"`    // number of the tensors that they represent
	Parameters int64  `json:"parameters"` // number of elements of these tensors
}

// quantisedTotals dequantises a source, and returns the totals by layout. It does not look for a
// config if the source cannot have quantised tensors.
func quantisedTotals(src *source.Checkpoint) ([]quantisedTotal, error) {
	of := map[string]quantisedTotal{}
	for _, part := range src.Sources() {
		if !mayBeQuantised(part) {
			continue
		}
		layouts, err := dequantize(part)
		if err != nil {
			return nil, err
		}
		for name, x := range part.Tensors {
			if l, ok := layouts[name]; ok {
				t := of[l.String()]
				of[l.String()] = quantisedTotal{l.String(), t.Tensors + 1, t.Parameters + numbers.Count(x)}
			}
		}
	}
	byLayout := func(a, b quantisedTotal) int { return cmp.Compare(a.Layout, b.Layout) }
	return slices.SortedFunc(maps.Values(of), byLayout), nil
}
