package merge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// withoutCopies returns the tensors of an adapter without those that repeat others. peft stores
// whole embeddings twice if they are modules to save, next to those before training, which it never
// reads. It also stores the head of a model whose head is tied to the embeddings, although the base
// does not.
func (c *config) withoutCopies(base, adapter checkpoint) (checkpoint, error) {
	rest := maps.Clone(adapter)
	for _, name := range slices.Sorted(maps.Keys(adapter)) {
		plain := strings.Replace(name, ".modules_to_save.", ".", 1)
		if plain == name {
			continue
		}
		if whole, ok := adapter[plain]; ok {
			same, err := Equal(adapter[name], whole)
			if err != nil {
				return nil, err
			}
			if !same {
				return nil, fmt.Errorf("adapter tensors %q and %q are both for %q and differ", plain, name, partOf(plain).target)
			}
		}
		rest[plain] = adapter[name]
		delete(rest, name)
	}
	for name := range adapter {
		if _, ok := rest[strings.Replace(name, ".original_module.", ".", 1)]; ok && strings.Contains(name, ".original_module.") {
			delete(rest, name)
		}
	}
	for name, bias := range rest { // the bias of a tied head in BERT has two names, and the base stores one
		p := partOf(name)
		plain, is := strings.CutSuffix(name, ".decoder.bias")
		one, found := rest[plain+".bias"]
		if !is || !found || !p.whole() || base[p.target].DType() != 0 {
			continue
		}
		same, err := Equal(bias, one)
		if err != nil {
			return nil, err
		}
		if same {
			delete(rest, name)
		}
	}
	for name, head := range rest {
		if p := partOf(name); !tensorname.IsHead(p.target) || base[p.target].DType() != 0 {
			continue
		}
		if err := c.dropTied(rest, name, head); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// dropTied removes the tensor called name of a head from an adapter, if the embeddings in the adapter have an equal one: both are
// whole, or both are the rows of the same trainable tokens.
func (c *config) dropTied(adapter checkpoint, name string, head safetensors.Tensor) error {
	own := partOf(name)
	for other, t := range adapter {
		p := partOf(other)
		if p.letter != own.letter || own.letter != 0 && own.letter != 't' || !tensorname.IsEmbedding(p.target) {
			continue
		}
		if own.letter == 't' {
			rows, err := c.Tokens.rowsOf(own.module)
			others, err2 := c.Tokens.rowsOf(p.module)
			if err != nil || err2 != nil || !slices.Equal(rows, others) {
				continue
			}
		}
		same, err := Equal(head, t)
		if err != nil {
			return err
		}
		if same {
			delete(adapter, name)
			return nil
		}
	}
	return nil
}

// untied returns the name of the embeddings that an adapter unties from a head that is not stored, or "". The adapter
// changes base into merged.
func (c *config) untied(base, adapter, merged checkpoint) (string, error) {
	for name := range adapter {
		if p := partOf(strings.Replace(name, ".modules_to_save.", ".", 1)); p.whole() && tensorname.IsHead(p.target) {
			return "", nil
		}
	}
	for _, name := range slices.Sorted(maps.Keys(base)) {
		if !tensorname.IsEmbedding(name) || c.Tying || !c.saves(strings.TrimSuffix(name, ".weight")) || hasHead(base, base[name]) {
			continue
		}
		same, err := Equal(base[name], merged[name])
		if err != nil {
			return "", fmt.Errorf("tensor %q: %w", name, err)
		}
		if !same {
			return name, nil
		}
	}
	return "", nil
}

// saves reports whether a module is one of the modules to save. peft compares the ends of names.
func (c *config) saves(module string) bool {
	var ends []string
	_ = json.Unmarshal(c.Saved, &ends) // without a list, there are no modules to save
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(module, end) })
}

// savedModule returns the name of the module to save that has a tensor, or "".
func (c *config) savedModule(tensor string) string {
	for i, char := range tensor {
		if char == '.' && c.saves(tensor[:i]) {
			return tensor[:i]
		}
	}
	return ""
}

// hasHead reports whether a base stores a head next to an embedding.
func hasHead(base checkpoint, embedding safetensors.Tensor) bool {
	for name, t := range base {
		if tensorname.IsHeadOf(name, t.Shape(), embedding.Shape()) {
			return true
		}
	}
	return false
}

// EmbeddingsOf returns the name of the embeddings of a model that has no head, and to which the head called name is
// probably tied: those with the shape of the head. It returns "" if there are none, or if name is not that of a head.
func EmbeddingsOf(model map[string]safetensors.Tensor, name string, head safetensors.Tensor) string {
	for _, other := range slices.Sorted(maps.Keys(model)) {
		if tensorname.IsHead(name) && tensorname.IsEmbedding(other) && slices.Equal(model[other].Shape(), head.Shape()) && !hasHead(model, head) {
			return other
		}
	}
	return ""
}

// tiedHint returns a hint for an adapter of a head that the base does not store, or "".
func tiedHint(base checkpoint, target string) string {
	for name := range base {
		if tensorname.IsHead(target) && tensorname.IsEmbedding(name) {
			return ": its head is tied to its embeddings, and the adapter has another head"
		}
	}
	return ""
}

// A tokenIndices holds the rows that an adapter of trainable tokens replaces: one list for the
// embeddings, or a list for each of the modules that it names.
type tokenIndices struct {
	all      []int
	byModule map[string][]int
}

func (i *tokenIndices) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &i.all); err == nil {
		return nil
	}
	i.all = nil
	return json.Unmarshal(text, &i.byModule)
}

// rowsOf returns the indices of the rows that the adapter changes in a module.
func (i *tokenIndices) rowsOf(module string) ([]int, error) {
	if i.byModule == nil {
		return i.all, nil
	}
	var found []string
	for name := range i.byModule {
		if module == name || strings.HasSuffix(module, "."+name) {
			found = append(found, name)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("trainable_token_indices has %d lists for %q, expected one", len(found), module)
	}
	return i.byModule[found[0]], nil
}

// replaceRows returns w with other rows at some indices, converted to the dtype of w.
func (c *config) replaceRows(w, rows safetensors.Tensor, module string) (safetensors.Tensor, error) {
	at, err := c.Tokens.rowsOf(module)
	if err != nil {
		return w, err
	}
	s, r := w.Shape(), rows.Shape()
	if len(s) != 2 || len(r) != 2 || s[1] != r[1] || r[0] != len(at) {
		return w, fmt.Errorf("it is %v, that of the base is %v, and trainable_token_indices has %d tokens: their shapes do not fit", rows, w, len(at))
	}
	if rows.DType() != w.DType() {
		if rows, err = rows.Convert(w.DType()); err != nil {
			return w, err
		}
	}
	order := make([]int, len(at)) // the positions in at, by the rows that they stand for
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(at[i], at[j]) })
	var pieces []safetensors.Tensor
	next := 0 // the first row of w that is not yet in pieces
	add := func(t safetensors.Tensor, from, to int) error {
		if from == to {
			return nil
		}
		piece, err := t.Slice(safetensors.Span(from, to))
		pieces = append(pieces, piece)
		return err
	}
	for _, i := range order {
		switch {
		case at[i] < 0 || at[i] >= s[0]:
			return w, fmt.Errorf("trainable_token_indices has %d, the base has %d rows", at[i], s[0])
		case at[i] < next:
			return w, fmt.Errorf("trainable_token_indices has %d twice", at[i])
		}
		if err := errors.Join(add(w, next, at[i]), add(rows, i, i+1)); err != nil {
			return w, err
		}
		next = at[i] + 1
	}
	if err := add(w, next, s[0]); err != nil {
		return w, err
	}
	if len(pieces) == 0 {
		return w, nil
	}
	return safetensors.Concat(0, pieces...)
}
