package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/blocks"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/convert"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/npz"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/numbers"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/quant"
)

// quantisedParts returns the layouts of the tensors of a source that are parts of quantised
// tensors. It is an error if that cannot be determined.
func quantisedParts(src *source.Checkpoint) (map[string]quant.Layout, error) {
	configs, err := configsOf(src)
	if err != nil && len(src.Sources()) == 1 {
		err = fmt.Errorf("%s: %w", storage.Shown(src.Name), err)
	}
	if err != nil {
		return nil, err
	}
	parts := make(map[string]quant.Layout)
	for _, config := range configs {
		layouts, err := quant.Layouts(src.Tensors, config)
		if err != nil {
			return nil, fmt.Errorf("%s: it is not known which tensors are quantised, and a conversion would spoil those: %w", storage.Shown(src.Name), withUnreadConfig(src, config, term.Bare(err)))
		}
		maps.Copy(parts, layouts)
	}
	return parts, nil
}

// isQuantised reports whether a tensor is a part of a quantised tensor, or the result of
// dequantising one.
func (w *copyJob) isQuantised(name string) bool {
	_, quantised := w.layouts[name]
	return quantised
}

// target returns the dtype to which a tensor of the source is converted. It counts the tensors that
// keep their dtype because they are quantised.
func (w *copyJob) target(name string, d safetensors.DType) safetensors.DType {
	quantised := w.isQuantised(name)
	if quantised && w.plain != 0 {
		d = w.plain
	}
	w.stored[d]++
	to, ok := w.conversions[d]
	if !ok || to == d {
		return d
	}
	if quantised && w.plain == 0 { // parts of quantised tensors are not converted
		w.kept++
		return d
	}
	w.dtypes[d] = to
	return to
}

// countParameters sets the number of parameters for the index if some of the tensors are codes of
// quantised weights. If all tensors of the source are copied, it is the number that ls shows.
func (w *copyJob) countParameters() error {
	sum := func(tensors map[string]safetensors.Tensor) (n int64) {
		for _, t := range tensors {
			n += numbers.Count(t)
		}
		return n
	}
	switch {
	case w.quantize != "":
		w.parameters = sum(w.tensors)
	case w.plain == 0 && mayBeQuantised(w.src):
		src := *w.src
		src.Tensors, src.Order = maps.Clone(w.src.Tensors), slices.Clone(w.src.Order)
		layouts, err := dequantize(&src)
		switch {
		case errors.As(err, new(unreadConfig)):
			return fmt.Errorf("%s: %w", storage.Shown(w.src.Name), err)
		case err == nil && len(layouts) == 0: // nothing is quantised, so that each element is a parameter
		case err == nil && len(w.tensors) == len(w.src.Order):
			w.parameters = sum(src.Tensors)
		default:
			w.parameters = -1
		}
	}
	return nil
}

// count replaces the converted and the merged tensors by ones that count the values beyond the range of the new dtype. After
// that, it cannot be known whether two tensors share their data.
func (w *copyJob) count() error {
	left := int64(blocks.Most)
	w.counts = make(map[string]*convert.Count)
	for name, t := range w.tensors {
		from := w.src.Tensors[w.origin[name]]
		before, merged := w.bases[w.origin[name]]
		if merged = merged && before.DType() == t.DType(); from.DType() == t.DType() && !merged {
			continue
		}
		if left -= from.Size(); left < 0 {
			return nil
		}
		count := func() (safetensors.Tensor, *convert.Count, error) { return convert.Counted(from, t.DType()) }
		if merged {
			count = func() (safetensors.Tensor, *convert.Count, error) { return convert.Merged(t, before) }
		}
		counted, found, err := count()
		if err != nil {
			return ofTensor(name, err)
		}
		w.tensors[name], w.counts[name] = counted, found
	}
	return nil
}

// noteOtherDTypes notes stored tensors whose dtype has numbers that the dtype of the dequantised tensors does not have. If the
// copy has a config.json, libraries that load it with the dtype of that config round these numbers.
func (w *copyJob) noteOtherDTypes(note func(text string)) {
	if w.plain == 0 {
		return
	}
	to := cmp.Or(w.conversions[w.plain], w.plain) // the dtype of the config, if there is one
	config := ""
	if w.config != nil && slices.Contains(w.side, "config.json") {
		config = fmt.Sprintf(", and config.json says %v", to)
	}
	for _, d := range []safetensors.DType{safetensors.BF16, safetensors.F16, safetensors.F32, safetensors.F64} {
		rounds := d != to && d.Bits() >= to.Bits() // BF16 and F16 are equally wide, and each has numbers that the other has not
		if n := w.stored[d]; n > 0 && rounds && w.conversions[d] == 0 {
			note(fmt.Sprintf("%s stayed %v%s; --dtype %v=%v converts %s, too", term.Plural(n, "tensor"), d, config, d, to, term.Either(n, "it", "them")))
		}
	}
	for _, d := range slices.SortedFunc(maps.Keys(w.dtypes), byName) {
		if became := w.dtypes[d]; config != "" && d != w.plain && became != to && became.IsFloat() && became.Bits() >= to.Bits() {
			note(fmt.Sprintf("%s became %v%s: libraries that load the copy in that dtype round them", term.Plural(w.stored[d], "tensor"), became, config))
		}
	}
}

// noteUnconverted notes the dtypes that --dtype names and no tensor has, and the narrow floats that a DTYPE without
// FROM= leaves as they are. If there are quantised tensors, another note tells about these.
func (w *copyJob) noteUnconverted(note func(text string)) {
	for _, d := range slices.SortedFunc(maps.Keys(w.converted), byName) {
		if to := w.conversions[d]; to != d && w.stored[d] == 0 {
			note(fmt.Sprintf("--dtype %v=%v has no effect: no tensor is %v", d, to, d))
		}
	}
	var to safetensors.DType // the DTYPE without FROM=
	for d, target := range w.conversions {
		if !w.converted[d] {
			to = target
		}
	}
	if to.Bits() < 16 || len(w.layouts) > 0 {
		return
	}
	n := 0
	var narrow []string
	for _, d := range slices.SortedFunc(maps.Keys(w.stored), byName) {
		if _, converts := w.conversions[d]; d.IsFloat() && !converts {
			n += w.stored[d]
			narrow = append(narrow, d.String())
		}
	}
	if n > 0 {
		flag := to.String()
		for _, d := range narrow {
			flag += fmt.Sprintf(",%s=%v", d, to)
		}
		note(fmt.Sprintf("%s of %s left unchanged: --dtype %v converts F64, F32, F16 and BF16; --dtype %s converts %s, too", term.Plural(n, "tensor"), strings.Join(narrow, ", "), to, flag, term.Either(n, "it", "them")))
	}
}

// noteReaders notes that the usual reader of a copy does not support it. HuggingFaceStorageReader of PyTorch 2.15 opens no
// files of ranks with some dtypes. sentence-transformers 6.2 calls the method forward of a quantised model itself, so that the
// hook of transformers that makes numbers of the codes does not run.
func (w *copyJob) noteReaders(note func(text string)) {
	if w.ranks > 0 {
		unknown := make(map[string]bool)
		for _, t := range w.tensors {
			if d := t.DType(); d.Bits() < 8 || d == safetensors.F8_E8M0 {
				unknown[d.String()] = true
			}
		}
		if len(unknown) > 0 {
			note(fmt.Sprintf("HuggingFaceStorageReader of PyTorch does not know %s, and opens no checkpoint that has such tensors", strings.Join(slices.Sorted(maps.Keys(unknown)), ", ")))
		}
	}
	if w.quantize == "" {
		return
	}
	if side, err := w.src.Folder.SideFiles(); err == nil && slices.Contains(side, modulesFile) {
		note("sentence-transformers loads the quantised model, but cannot run it; transformers can")
	}
}

// byName compares dtypes by their names.
func byName(a, b safetensors.DType) int { return cmp.Compare(a.String(), b.String()) }

// leastShare is the share of all parameters from which a note mentions those of unknown modules that
// --quantize leaves unchanged: most models have a few.
const leastShare = 0.05

// withDType adds advice to the error of a format that lacks a dtype: the --dtype that converts all tensors whose dtype it
// lacks, or the --dequantize for quantised tensors, whose codes keep their dtype. It returns any other error unchanged.
func (w *copyJob) withDType(err error) error {
	var lacking npz.NoType
	if !errors.As(err, &lacking) {
		return err
	}
	for from, to := range w.dtypes {
		if to == lacking.DType && from != to {
			return fmt.Errorf("%w, to which --dtype converts tensors; leave the flag out, or write --dtype f32", err)
		}
	}
	if w.quantize != "" {
		return fmt.Errorf("%w; leave --quantize out, or write a .safetensors file", err)
	}
	if codes, unread := hasCodes(w.src, w.src.Order); unread == nil && codes && w.plain == 0 {
		return fmt.Errorf("%w; --dequantize f32 --dtype f32 writes the numbers of quantised tensors", err)
	}
	missing := make(map[safetensors.DType]bool)
	for _, t := range w.tensors {
		if npz.Lacks(t.DType()) {
			missing[t.DType()] = true
		}
	}
	flag := slices.Clone(w.copyFlags.dtypes)
	for _, d := range slices.SortedFunc(maps.Keys(missing), byName) {
		flag = append(flag, d.String()+"=F32")
	}
	return fmt.Errorf("%w; --dtype %s converts %s", err, strings.Join(flag, ","), term.Either(len(flag), "it", "all"))
}

// asBefore returns the end of a note that n tensors stayed as they were.
func asBefore(n int) string { return term.Either(n, "it was", "they were") }

// notes calls note with each message that follows the copy.
func (w *copyJob) notes(note func(text string)) {
	var left []string // tensors that no value needs
	for name, l := range w.layouts {
		if w.plain != 0 && l.Bits == 0 {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		note(fmt.Sprintf("%s that no value needs, such as %s, left out", term.Plural(len(left), "tensor"), term.Name(slices.Min(left))))
	}
	w.noteLost(note)
	w.noteEmbeddings(note)
	w.noteUnconverted(note)
	w.noteOtherDTypes(note)
	w.noteConfigDType(note)
	w.noteReaders(note)
	w.noteApart(note)
	if w.kept > 0 {
		note(fmt.Sprintf("%s of quantised tensors kept the dtype; --dequantize writes the numbers", term.Plural(w.kept, "part")))
	} else if w.plain == 0 && len(w.conversions) > 0 && len(w.layouts) > 0 { // the parts of quantised tensors have other dtypes
		note("quantised tensors stayed as they are; --dequantize writes the numbers")
	}
	if w.idle.n > 0 && w.quantize == quant.FP8Block {
		note(fmt.Sprintf("the columns of %s, such as %s, are not whole groups of 128: transformers loads the model, but cannot run it; --quantize fp8-channel has no groups", term.Plural(w.idle.n, "quantised tensor"), term.Name(w.idle.first)))
	} else if w.idle.n > 0 {
		note(fmt.Sprintf("%s, such as %s, had another dtype than BF16: transformers loads the model, but cannot run it; --dtype bf16 converts the tensors first", term.Plural(w.idle.n, "quantised tensor"), term.Name(w.idle.first)))
	}
	if w.fused.n > 0 {
		note(fmt.Sprintf("%s of several matrices, such as those of fused experts, stayed as %s: %.0f %% of all parameters", term.Plural(w.fused.n, "tensor"), asBefore(w.fused.n), 100*w.fused.share))
	}
	if w.narrow.n > 0 {
		which := term.Name(w.narrow.first)
		if w.narrow.n > 1 {
			which += ", …"
		}
		note(fmt.Sprintf("%s stayed as %s, %.0f %% of all parameters, because %s columns are not whole groups of %s: %s",
			term.Plural(w.narrow.n, "tensor"), asBefore(w.narrow.n), 100*w.narrow.share, term.Either(w.narrow.n, "its", "their"), w.quantize, which))
	}
	if w.others.share >= leastShare {
		note(fmt.Sprintf("%s whose names or shapes are not those of matrices of linear modules, such as %s, stayed as %s: %.0f %% of all parameters", term.Plural(w.others.n, "tensor"), term.Name(w.others.first), asBefore(w.others.n), 100*w.others.share))
	}
	const most = 10
	within := func(name string) bool { return w.counts[name].Total() == 0 }
	beyond := slices.DeleteFunc(slices.Sorted(maps.Keys(w.counts)), within)
	for _, name := range beyond[:min(len(beyond), most)] {
		n := w.counts[name]
		note(fmt.Sprintf("tensor %s: %s became %s", term.Name(name), term.Plural(int(n.Total()), "value"), n.Became()))
	}
	if more := len(beyond) - most; more > 0 {
		note(fmt.Sprintf("so did values of %s", term.Plural(more, "other tensor")))
	}
}
