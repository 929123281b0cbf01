package main

import (
	"bytes"
	"cmp"
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
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/pyjson"
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

// A notLoaded is the error of --quantize if no program would load the result.
type notLoaded string

func (e notLoaded) Error() string { return "--quantize: " + string(e) }

// refuseQuantised returns a notLoaded for a source whose library does not load weights in the format of compressed-tensors:
// peft takes codes for numbers, and diffusers refuses the config.
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
		if err == nil && json.Unmarshal(pyjson.WithNulls(text), &config) == nil && config.Class != "" {
			return notLoaded(fmt.Sprintf("%s is a model of diffusers (%s), which does not load the format of compressed-tensors", storage.Shown(one.Name), term.Name(config.Class)))
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

// mayBeQuantised reports whether a source has matrices of dtypes that are used for codes.
func mayBeQuantised(src *source.Checkpoint) bool {
	return slices.ContainsFunc(src.Order, func(name string) bool {
		switch src.Tensors[name].DType() {
		case safetensors.F8_E4M3, safetensors.U8, safetensors.I8, safetensors.I32, safetensors.U32:
			return len(src.Tensors[name].Shape()) > 1
		}
		return false
	})
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
