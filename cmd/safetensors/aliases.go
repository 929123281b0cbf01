package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/tensorname"
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

// checkAliases returns an error if one of these names is an alias in two of several sources that were opened as one: it would
// stand for two tensors.
func checkAliases(src *source.Checkpoint, names []string) error {
	first := make(map[string]*source.Checkpoint) // the source that has the alias
	stored := make(map[string]string)
	selected := setOf(names)
	for _, part := range src.Sources() {
		aliases := aliasesOf(part)
		for _, alias := range slices.Sorted(maps.Keys(aliases)) {
			name, other := aliases[alias], first[alias]
			if other != nil && selected[alias] {
				return fmt.Errorf("%q is another name of %q in %s, and of %q in %s; --except %s leaves it out", alias, stored[alias], storage.Shown(other.Name), name, storage.Shown(part.Name), term.Word(alias))
			}
			first[alias], stored[alias] = part, name
		}
	}
	return nil
}

// storedAs returns the name under which a source with these aliases stores the tensor of this name.
func storedAs(name string, aliases map[string]string) string {
	if stored, is := aliases[name]; is {
		return stored
	}
	return name
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

// noteEmbeddings notes embeddings that --tie has left only as another name of a tensor, such as the head, which sorts first. It
// advises to leave out the head if config.json ties it.
func (w *copyJob) noteEmbeddings(note func(text string)) {
	if !w.tie {
		return
	}
	all, _ := safetensors.Untie(w.tensors, w.metadata)
	for _, alias := range slices.Sorted(maps.Keys(all)) {
		stored := w.metadata[alias]
		if _, found := w.tensors[alias]; found || !tensorname.IsEmbedding(alias) || tensorname.IsEmbedding(stored) {
			continue
		}
		advice := "without --tie, the copy stores both"
		config, _ := w.src.Folder.ReadFile("config.json") // without one, the head may not be tied
		if tied, _ := tyingOf(config); tied && w.origin[stored] != "" {
			advice = fmt.Sprintf("--except %s leaves the head out instead", term.Word(w.origin[stored]))
		}
		note(fmt.Sprintf("%s is only another name of %s in the metadata, which not all programs read; %s", term.Name(alias), term.Name(stored), advice))
	}
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

// withNamesOf returns a source in which a tensor stands under each of its aliases that is among names, too.
func withNamesOf[V any](src *source.Checkpoint, names map[string]V) *source.Checkpoint {
	return withNames(src, aliasesOf(src), names)
}

// withNames returns a source in which a tensor stands under each of these aliases that is among names, too.
func withNames[V any](src *source.Checkpoint, aliases map[string]string, names map[string]V) *source.Checkpoint {
	aliases = maps.Clone(aliases)
	maps.DeleteFunc(aliases, func(alias, _ string) bool {
		_, wanted := names[alias]
		return !wanted
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

// addTiedHead adds a head to the aliases of a source that does not store it, because its config ties it to the embeddings. It
// adds only a head that another source stores for these embeddings: their name is among the aliases of that source.
func addTiedHead(aliases map[string]string, src, other *source.Checkpoint) error {
	for alias, stored := range aliasesOf(other) {
		if merge.EmbeddingsOf(src.Tensors, stored, other.Tensors[stored]) != alias {
			continue
		}
		config, err := src.Folder.ReadFile("config.json")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if tied, _ := tyingOf(config); tied {
			aliases[stored] = alias
		}
	}
	return nil
}

// namedLike returns a source with the names under which another source stores tensors. If the other source has one tensor
// under two names, and src stores it twice with equal elements, the result has it once. A head that the config of a model
// ties, and that the model does not store, is another name of its embeddings if the other source has one tensor for both.
func namedLike(src, other *source.Checkpoint) (*source.Checkpoint, error) {
	ofSrc, ofOther := aliasesOf(src), aliasesOf(other)
	if err := errors.Join(addTiedHead(ofSrc, src, other), addTiedHead(ofOther, other, src)); err != nil {
		return nil, err
	}
	wanted := make(map[string]bool)
	for name := range other.Tensors {
		wanted[name] = true
	}
	for alias, stored := range ofOther { // aliases of both sources, which may stand for different tensors
		wanted[alias] = wanted[alias] || ofSrc[alias] != "" && ofSrc[alias] != stored
	}
	maps.DeleteFunc(wanted, func(_ string, is bool) bool { return !is })
	all := *withNames(src, ofSrc, wanted)
	all.Tensors, all.Order = maps.Clone(all.Tensors), slices.Clone(all.Order)
	alike := make(map[[2]string]bool) // whether two tensors of src are alike, by their stored names
	for alias, stored := range ofOther {
		one, hasOne := all.Tensors[alias]
		two, hasTwo := all.Tensors[stored]
		if !hasOne || !hasTwo {
			continue
		}
		pair := [2]string{storedAs(alias, ofSrc), storedAs(stored, ofSrc)}
		same, known := alike[pair]
		if !known {
			var err error
			if same, err = merge.Equal(one, two); err != nil {
				return nil, ofTensor(alias, err)
			}
			alike[pair] = same
		}
		if same {
			delete(all.Tensors, alias)
		}
	}
	all.Order = slices.DeleteFunc(all.Order, func(name string) bool { _, kept := all.Tensors[name]; return !kept })
	return &all, nil
}

// selectTensors returns those of names that a selection contains, in their order. The names are those
// of the tensors of a source, and possibly others. A tensor can also be selected by its aliases. A note
// says which tensor that is. --except leaves out a tensor by its own name only: if it names an alias,
// the note is about the tensor that stays.
func (c *command) selectTensors(src *source.Checkpoint, selection pattern.Selection, names []string) ([]string, error) {
	aliases := aliasesOf(src)
	for _, name := range names {
		delete(aliases, name)
	}
	maps.DeleteFunc(aliases, func(_, stored string) bool { return selection.Excludes(stored) })
	sorted := slices.Sorted(maps.Keys(aliases))
	all, err := selection.Of(slices.Concat(names, sorted))
	if err != nil {
		return nil, orAlias(err, src)
	}
	selected := make(map[string]bool, len(all))
	for _, name := range all {
		selected[name] = true
	}
	noted := slices.DeleteFunc(sorted, func(alias string) bool {
		if stored := aliases[alias]; selected[stored] {
			return !selection.Excludes(alias)
		}
		return !selected[alias]
	})
	for _, alias := range noted {
		selected[aliases[alias]] = true
	}
	c.noteAliases(aliases, noted)
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !selected[name] }), nil
}

// noteAliases notes the tensors that these aliases stand for. It counts all but the first few.
func (c *command) noteAliases(aliases map[string]string, names []string) {
	const most = 5
	for _, name := range names[:min(len(names), most)] {
		c.opener.Note(fmt.Sprintf("%s is another name of %s, as the metadata says", term.Name(name), term.Name(aliases[name])))
	}
	switch more := len(names) - most; {
	case more == 1:
		c.opener.Note("1 more name is another name of a tensor")
	case more > 1:
		c.opener.Note(fmt.Sprintf("%d more names are other names of tensors", more))
	}
}

// commonAliases returns the aliases that two sources have in common, sorted. It leaves out those of
// tensors that --except leaves out.
func commonAliases(a, b *source.Checkpoint, selection pattern.Selection) []string {
	ofA, ofB := aliasesOf(a), aliasesOf(b)
	maps.DeleteFunc(ofA, func(alias, stored string) bool {
		other, both := ofB[alias]
		return !both || selection.Excludes(stored) || selection.Excludes(other)
	})
	return slices.Sorted(maps.Keys(ofA))
}

// compareAliases prepares two sources for the comparison of the selected names, some of which may be
// aliases in both. If an alias is selected, but the tensor for which it stands in one of them is not,
// compareAliases adds the tensors to both sources under that name, and notes which tensors they are. It does the same if the
// alias stands for different tensors in the two sources, and no other selected name compares these two.
// It leaves out the other aliases from the names that it returns: their tensors are compared anyway.
func (c *command) compareAliases(selected []string, a, b *source.Checkpoint) []string {
	ofA, ofB := aliasesOf(a), aliasesOf(b)
	var names, byAlias []string
	all := make(map[string]bool, len(selected))
	for _, name := range selected {
		all[name] = true
	}
	pairs := make(map[[2]string]bool) // tensors of A and of B that aliases compare
	for _, name := range selected {
		storedA, inA := ofA[name]
		storedB, inB := ofB[name]
		pair := [2]string{storedA, storedB}
		compared := pairs[pair] || all[storedA] && storedAs(storedA, ofB) == storedB || all[storedB] && storedAs(storedB, ofA) == storedA
		switch {
		case !inA || !inB:
			names = append(names, name)
		case !compared:
			pairs[pair] = true
			a.Tensors[name], b.Tensors[name] = a.Tensors[storedA], b.Tensors[storedB]
			names, byAlias = append(names, name), append(byAlias, name)
		}
	}
	c.noteAliases(ofA, byAlias)
	c.noteAliases(ofB, slices.DeleteFunc(byAlias, func(name string) bool { return ofA[name] == ofB[name] }))
	return names
}

// noteNamesOfOne notes the aliases that only one of two sources has, if they stand for tensors among the compared names. diff
// does not count them as differences, because it compares tensors, and an alias is part of the metadata.
func (c *command) noteNamesOfOne(src, other *source.Checkpoint, compared []string) {
	names, ofOther := setOf(compared), aliasesOf(other)
	aliases := aliasesOf(src)
	maps.DeleteFunc(aliases, func(alias, stored string) bool {
		_, inTensors := other.Tensors[alias]
		_, inAliases := ofOther[alias]
		return inTensors || inAliases || !names[stored]
	})
	if n := len(aliases); n > 0 {
		c.opener.Note(fmt.Sprintf("only the metadata of %s has %s, as %s: --meta compares metadata", storage.Shown(src.Name),
			variant.List(slices.Sorted(maps.Keys(aliases)), 3, term.Name), term.Either(n, "another name of a tensor", "other names of tensors")))
	}
}

// orAlias returns err, the error of Selection.Of. If a pattern matches no name, but an alias in one of
// the sources, orAlias returns an error that names the tensor.
func orAlias(err error, sources ...*source.Checkpoint) error {
	var none *pattern.NoMatch
	if !errors.As(err, &none) {
		return err
	}
	for _, src := range sources {
		aliases := aliasesOf(src)
		for _, name := range slices.Sorted(maps.Keys(aliases)) {
			if none.Glob.Matches(name) {
				return fmt.Errorf("no tensor of %s matches %q, but its metadata says that %q is another name of %q", storage.Shown(src.Name), none.Glob, name, aliases[name])
			}
		}
	}
	return err
}
