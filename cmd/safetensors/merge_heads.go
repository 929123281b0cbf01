package main

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/pattern"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/lazyregexp"
)

// The funcs in this file are about output heads that are tied to the embeddings, in merges of whole models.

// A pair is an output head and the embedding to which a model ties it. It is zero if there is none.
type pair struct{ head, embedding string }

// untie sets apart to a head and an embedding that are alike in the first model, but not in all others: the merged ones are
// not alike, so that the config of the copy must not tie them. It does nothing if the first model has no config.json, or one
// that unties its head.
func (w *copyJob) untie(models []*source.Checkpoint) error {
	config, err := w.src.Folder.ReadFile("config.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if ties, unties := tyingOf(config); unties && !ties {
		return nil
	}
	heads, embeddings := merge.HeadsAndEmbeddings(models[0].Tensors)
	const most = 16 // no model has more heads or embeddings, and the pairs of many would take long
	for _, head := range heads[:min(len(heads), most)] {
		for _, embedding := range embeddings[:min(len(embeddings), most)] {
			one := pair{head, embedding}
			alike, err := one.alikeIn(models[:1])
			if err == nil && !alike {
				continue // the first model does not tie them
			}
			if err == nil {
				alike, err = one.alikeIn(models[1:])
			}
			if err != nil {
				return err
			}
			if !alike {
				w.apart = one
				return nil
			}
		}
	}
	return nil
}

// alikeIn reports whether the head and the embedding have the same elements in each of some models.
func (p pair) alikeIn(models []*source.Checkpoint) (bool, error) {
	for _, m := range models {
		if same, err := safetensors.Equal(m.Tensors[p.head], m.Tensors[p.embedding]); err != nil {
			return false, ofTensor(p.head, err)
		} else if !same {
			return false, nil
		}
	}
	return true, nil
}

// ties matches the field of a config that ties the head.
var ties = lazyregexp.New(`("tie_word_embeddings"\s*:\s*)true`)

// untiedConfig returns a config that does not tie the head.
func untiedConfig(text []byte) []byte {
	if ties().Match(text) {
		return ties().ReplaceAll(text, []byte("${1}false"))
	}
	return withMembers(text, []byte(`{"tie_word_embeddings": false}`))
}

// noteApart notes the head and the embedding that are not alike any more.
func (w *copyJob) noteApart(note func(text string)) {
	if w.apart == (pair{}) {
		return
	}
	does := `the config.json of the copy needs "tie_word_embeddings": false`
	if w.config != nil && slices.Contains(w.side, "config.json") {
		does = `"tie_word_embeddings" is false in the config.json of the copy`
	}
	note(fmt.Sprintf("%s and %s are alike in the first model, but not in all others: %s", term.Name(w.apart.head), term.Name(w.apart.embedding), does))
}

// tiedAdvice returns err with other advice if it is about a head that one model stores, and that is tied to the
// embeddings of another one. A merge of the two needs two tensors, and a config.json that does not tie them, so that
// the user has to give the tied model a head first. A head that equals the embeddings of its own model is superfluous.
func tiedAdvice(err error, models []*source.Checkpoint) error {
	var unpaired *merge.UnpairedError
	if !errors.As(err, &unpaired) {
		return err
	}
	name, with, without := unpaired.Name, models[unpaired.With], models[unpaired.Without]
	verb := "stands"
	stored := aliasesOf(without)[name]
	if stored == "" {
		verb = "probably stands"
		stored = merge.EmbeddingsOf(without.Tensors, name, with.Tensors[name])
	}
	if stored == "" {
		return err
	}
	same, unequal := merge.Equal(with.Tensors[name], with.Tensors[stored])
	if unequal != nil {
		return ofTensor(name, unequal)
	}
	if same {
		return fmt.Errorf("%s, where %q %s for it. It equals %[2]q of its own model: cp --except makes a copy without it", unpaired.Fact(), stored, verb)
	}
	if _, both := with.Tensors[stored]; !both && aliasesOf(without)[name] != "" {
		return fmt.Errorf("%s, where %q %s for it. To store it under the first name in a copy: cp %s COPY --except %s",
			unpaired.Fact(), stored, verb, storage.Word(without.Name), term.Word(stored))
	}
	return fmt.Errorf("%s, where %q %s for it. To store both in a copy: cp %s head.safetensors --only %s --rename %s, then cp %[4]s head.safetensors COPY; "+
		`copy config.json to COPY, too, and set "tie_word_embeddings" to false in it`, unpaired.Fact(), stored, verb, storage.Word(without.Name), term.Word(stored), term.Word(pattern.Replacing(".*", name)))
}
