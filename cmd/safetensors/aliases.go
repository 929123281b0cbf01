package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// aliasesOf maps each alias of a tensor in a source to the name under which the tensor is stored.
// save_model of Python, and cp --tie, write tied tensors once, and note their other names in the
// metadata as Untie of the library describes. The metadata key format is never an alias, because it
// names a framework. Only safetensors files have aliases.
func aliasesOf(src *source.Checkpoint) map[string]string {
	aliases := make(map[string]string)
	if src.OfTorch() {
		return aliases
	}
	all, _ := safetensors.Untie(src.Tensors, src.Metadata)
	for name := range all {
		if _, stored := src.Tensors[name]; !stored && name != "format" {
			aliases[name] = src.Metadata[name]
		}
	}
	return aliases
}

// tieAliases returns the aliases of a copy of the selected names, renamed[i] being the new name of
// names[i], and the names in the copy of the tensors that they stand for. If a tensor is left out,
// but not all of its aliases, the first of these becomes the name of the tensor.
func tieAliases(names, renamed []string, aliases map[string]string) map[string]string {
	written := make(map[string]string) // maps names in the source to names in the copy
	for i, name := range names {
		if _, alias := aliases[name]; !alias {
			written[name] = renamed[i]
		}
	}
	tied := make(map[string]string)
	for i, name := range names {
		stored, alias := aliases[name]
		if !alias {
			continue
		}
		if to, ok := written[stored]; ok {
			tied[renamed[i]] = to
		} else {
			written[stored] = renamed[i]
		}
	}
	return tied
}

// loseAliases sets lost to the aliases that --without-meta leaves out. --meta may set an alias again.
func (w *copyJob) loseAliases() {
	copied := make(map[string]bool)
	for _, name := range w.origin {
		copied[name] = true
	}
	aliases := aliasesOf(w.src)
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		if _, set := w.pairs[alias]; !set && copied[aliases[alias]] {
			w.lost = append(w.lost, alias)
		}
	}
}

// dropTied removes the aliases of tensors that --quantize replaces by codes and scales. A scheme may give the codes the
// name of the tensor, but without scales an alias would stand for other numbers.
func (w *copyJob) dropTied(quantised map[string]safetensors.Tensor) {
	for _, alias := range slices.Sorted(maps.Keys(w.tied)) {
		name := w.tied[alias]
		if quantised[name].DType() != w.tensors[name].DType() {
			w.lost = append(w.lost, alias)
			delete(w.tied, alias)
		}
	}
}

// noteLost notes the aliases that the copy lacks.
func (w *copyJob) noteLost(note func(text string)) {
	if len(w.lost) == 0 {
		return
	}
	text := "other names of tensors that became codes are lost: "
	if w.withoutMeta {
		text = "other names of tensors are lost without the metadata: "
	}
	note(text + variant.List(w.lost, 3, term.Name))
}

// withAliases returns metadata without the aliases before, and with the aliases after. It does not change metadata.
func withAliases(metadata, before, after map[string]string) map[string]string {
	if len(before) == 0 {
		return metadata
	}
	metadata = maps.Clone(metadata)
	for alias := range before {
		delete(metadata, alias)
	}
	return withPairs(metadata, after)
}

// withNamesOf returns a source in which a tensor stands under each of its aliases that the other source stores, too.
func withNamesOf(src, other *source.Checkpoint) *source.Checkpoint {
	aliases := aliasesOf(src)
	maps.DeleteFunc(aliases, func(alias, _ string) bool {
		_, stored := other.Tensors[alias]
		return !stored
	})
	if len(aliases) == 0 {
		return src
	}
	all := *src
	all.Tensors, all.Order = maps.Clone(src.Tensors), slices.Clone(src.Order)
	for _, alias := range slices.Sorted(maps.Keys(aliases)) {
		all.Tensors[alias] = src.Tensors[aliases[alias]]
		all.Order = append(all.Order, alias)
	}
	return &all
}

// aliasAdvice returns a sentence about a name that matches and is an alias in a source, or "" if there
// is none.
func aliasAdvice(src *source.Checkpoint, matches func(name string) bool) string {
	aliases := aliasesOf(src)
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		if matches(name) {
			return fmt.Sprintf("its metadata says that %q is another name of %q", name, aliases[name])
		}
	}
	return ""
}
