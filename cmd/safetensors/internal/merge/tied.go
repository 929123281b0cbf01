package merge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// A Tying maps each other name of a tensor to its main name. If embeddings are among the names of a tensor, its main name
// is theirs. Tensors with one name are not in a Tying.
type Tying map[string]string

// Name returns the main name of the tensor that has a name.
func (t Tying) Name(name string) string { return cmp.Or(t[name], name) }

// Once returns a model in which each tensor has only its main name.
func (t Tying) Once(model checkpoint) checkpoint {
	once := make(checkpoint, len(model))
	for name, tensor := range model {
		once[t.Name(name)] = tensor
	}
	return once
}

// Add adds another tying, which is one of the model that Once returns.
func (t Tying) Add(more Tying) {
	for name, to := range t {
		t[name] = more.Name(to)
	}
	maps.Copy(t, more)
}

// Group adds a tensor that is stored under one name and has others.
func (t Tying) Group(stored string, others []string) {
	names := append([]string{stored}, slices.Sorted(slices.Values(others))...)
	to := stored
	if i := slices.IndexFunc(names, tensorname.IsEmbedding); i >= 0 {
		to = names[i]
	}
	for _, name := range names {
		if name != to {
			t[name] = to
		}
	}
}

// HeadsAndEmbeddings returns the sorted names of the output heads and of the embeddings of tokens in a model.
func HeadsAndEmbeddings(model map[string]safetensors.Tensor) (heads, embeddings []string) {
	for _, name := range slices.Sorted(maps.Keys(model)) {
		switch {
		case tensorname.IsHead(name):
			heads = append(heads, name)
		case tensorname.IsEmbedding(name):
			embeddings = append(embeddings, name)
		}
	}
	return heads, embeddings
}

// TiedHeads returns the tying of heads to embeddings in a model whose config does not untie them. A model may store the
// same elements under both names, as torch.save does. If it stores no head, and its config ties one, the head that an
// adapter changes is another name of the only embeddings. TiedHeads reads nothing unless an adapter changes a head or
// embeddings.
func TiedHeads(base checkpoint, adapters []checkpoint, tiesHead bool) (Tying, error) {
	tied := make(Tying)
	targets := vocabularyIn(adapters)
	if len(targets) == 0 {
		return tied, nil
	}
	ofHeads, ofEmbeddings := HeadsAndEmbeddings(base)
	for _, head := range ofHeads {
		var same []string
		for _, name := range ofEmbeddings {
			equal, err := Equal(base[head], base[name])
			if err != nil {
				return nil, fmt.Errorf("tensor %q: %w", name, err)
			}
			if equal {
				same = append(same, name)
			}
		}
		if len(same) > 0 {
			tied.Group(same[0], append(same[1:], head))
		}
	}
	if tiesHead && len(ofEmbeddings) == 1 && !hasHead(base, base[ofEmbeddings[0]]) {
		for target := range targets {
			if tensorname.IsHead(target) {
				tied[target] = ofEmbeddings[0]
			}
		}
	}
	return tied, nil
}

// vocabularyIn returns the names of the heads and the embeddings that adapters change.
func vocabularyIn(adapters []checkpoint) map[string]bool {
	targets := make(map[string]bool)
	for _, adapter := range adapters {
		for name := range adapter {
			if target := targetOf(name); tensorname.IsHead(target) || tensorname.IsEmbedding(target) {
				targets[target] = true
			}
		}
	}
	return targets
}

// targetOf returns the name of the tensor of the base that a tensor of an adapter changes.
func targetOf(name string) string {
	return partOf(strings.Replace(name, ".modules_to_save.", ".", 1)).target
}

// An UntyingError reports that an adapter has a tensor for Name that is not to replace Other, although the two are tied.
type UntyingError struct{ Name, Other string }

func (e *UntyingError) Error() string {
	return fmt.Sprintf("it has a tensor of its own for %q, which is tied to %q: the model needs a tensor for each, as merge_and_unload of peft makes it; "+
		"to replace both by the same tensor, set ensure_weight_tying in adapter_config.json", e.Name, e.Other)
}
