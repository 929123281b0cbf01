package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/merge"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/source"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/storage"
	"github.com/gosafetensors/safetensors/cmd/safetensors/internal/term"
	"github.com/gosafetensors/safetensors/internal/modelconfig"
	"github.com/gosafetensors/safetensors/internal/tensorname"
)

// addAdapters returns the tensors of the source with all adapters merged into them, and records how
// the vocabulary grows.
func (w *copyJob) addAdapters(adapters []*source.Checkpoint) (map[string]safetensors.Tensor, error) {
	tied, err := w.tying(adapters)
	if err != nil {
		return nil, err
	}
	once := tied.Once(w.src.Tensors)
	stored := make(map[string][]string) // names of tensors in the source, by their names in once
	for name := range w.src.Tensors {
		stored[tied.Name(name)] = append(stored[tied.Name(name)], name)
	}
	for _, adapter := range adapters {
		got, err := addAdapter(w.src.Name, once, adapter, tied)
		if err == nil {
			err = w.checkTying(got.Untied, adapter, tied)
		}
		if err == nil {
			err = w.resize(got)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", storage.Shown(adapter.Name), w.untyingAdvice(err))
		}
		for _, name := range got.Computed {
			for _, name := range stored[name] {
				w.bases[name] = w.src.Tensors[name]
			}
		}
		once = got.Tensors
	}
	tensors := make(map[string]safetensors.Tensor, len(w.src.Tensors))
	for name := range w.src.Tensors {
		tensors[name] = once[tied.Name(name)]
	}
	return tensors, nil
}

// tying returns the other names of tied tensors of the source: those in its metadata, and those of heads that are tied to
// its embeddings.
func (w *copyJob) tying(adapters []*source.Checkpoint) (merge.Tying, error) {
	tied := make(merge.Tying)
	others := make(map[string][]string)
	for alias, name := range aliasesOf(w.src) {
		others[name] = append(others[name], alias)
	}
	for name, aliases := range others {
		tied.Group(name, aliases)
	}
	config, err := w.src.Folder.ReadFile("config.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if ties, unties := tyingOf(config); unties && !ties {
		return tied, nil
	}
	var all []map[string]safetensors.Tensor
	for _, adapter := range adapters {
		all = append(all, adapter.Tensors)
	}
	heads, err := merge.TiedHeads(tied.Once(w.src.Tensors), all, len(config) > 0 && !headless(config, nil))
	if err != nil {
		return nil, err
	}
	tied.Add(heads)
	return tied, nil
}

// addAdapter merges an adapter into the tensors of the base with this name.
func addAdapter(base string, tensors map[string]safetensors.Tensor, adapter *source.Checkpoint, tied merge.Tying) (*merge.Adapted, error) {
	if dialect := merge.Dialect(adapter.Order); dialect != "" {
		return nil, fmt.Errorf("it is a LoRA of %s; only adapters of peft can be merged", dialect)
	}
	config, err := adapter.Folder.ReadFile("adapter_config.json")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("there is no adapter_config.json next to it, as adapters of peft have")
	case err != nil:
		return nil, err
	}
	got, err := tied.LoRA(tensors, adapter.Tensors, config)
	var missing *merge.MissingError
	if errors.As(err, &missing) && missing.Saved != "" {
		err = fmt.Errorf(`%w. The adapter has a module to save that the base lacks. To add it to a copy: cp %s module.safetensors --only %s --rename 's/^base_model\.model\.//', then cp %s module.safetensors COPY; copy config.json to COPY, with the class and the labels of the new model, and merge COPY`,
			err, storage.Word(adapter.Name), term.Word("base_model.model."+missing.Saved), storage.Word(base))
	}
	if err == nil && got.Changed == 0 {
		err = errors.New("the adapter has no tensors")
	}
	return got, err
}

// checkTying returns an error if an adapter replaces embeddings to which a head is tied. peft leaves such a head as it was,
// but a copy with the new embeddings alone has a new head, too.
func (w *copyJob) checkTying(embeddings string, adapter *source.Checkpoint, tied merge.Tying) error {
	if embeddings == "" {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(tied)) {
		if tied[name] == embeddings {
			return &merge.UntyingError{Name: embeddings, Other: name}
		}
	}
	task, err := adapter.Folder.ReadFile("adapter_config.json")
	if err != nil {
		return err
	}
	config, err := w.src.Folder.ReadFile("config.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if headless(config, task) {
		return nil
	}
	return fmt.Errorf("it replaces %q, and the base does not store the head that is tied to it: peft leaves that head as it was, so that the model needs "+
		"a head of its own, as merge_and_unload of peft makes it; to change the head, too, set ensure_weight_tying in adapter_config.json", embeddings)
}

// untyingAdvice adds advice to an UntyingError about two tensors that the source stores.
func (w *copyJob) untyingAdvice(err error) error {
	var untying *merge.UntyingError
	if !errors.As(err, &untying) {
		return err
	}
	for _, name := range []string{untying.Name, untying.Other} {
		if _, stored := w.src.Tensors[name]; !stored {
			return err
		}
	}
	return fmt.Errorf("%w; to replace one of them, set tie_word_embeddings to false in the config.json of the base, which stores both", err)
}

// headless reports whether the config of a model, or that of an adapter for it, specifies that there is no head which is tied
// to the embeddings and not stored: by the class of the model, by the task, or by tie_word_embeddings. A config that names no
// class and no type is one of no library, and ties nothing unless it has tie_word_embeddings.
func headless(config, adapter []byte) bool {
	var model struct {
		Architectures []string `json:"architectures"`
		Type          string   `json:"model_type"`
	}
	var task struct {
		Type string `json:"task_type"`
	}
	_, _ = json.Unmarshal(config, &model), json.Unmarshal(adapter, &task) // without these keys, there may be a head
	ofHead := func(end string) bool { return strings.HasSuffix(model.Architectures[0], end) }
	if len(model.Architectures) > 0 && !slices.ContainsFunc(headClasses, ofHead) {
		return true
	}
	if slices.Contains([]string{"SEQ_CLS", "TOKEN_CLS", "QUESTION_ANS", "FEATURE_EXTRACTION"}, task.Type) {
		return true
	}
	tied, untied := tyingOf(config)
	named := len(config) == 0 || model.Type != "" || len(model.Architectures) > 0 || task.Type != ""
	return (untied || !named) && !tied
}

// tyingOf reports whether a config, or one within it, specifies that the head is tied to the embeddings, and whether one
// specifies that it is not.
func tyingOf(config []byte) (tied, untied bool) {
	_, _ = modelconfig.Change(config, nil, func(fields map[string]json.RawMessage) (bool, error) {
		value := string(fields["tie_word_embeddings"])
		tied, untied = tied || value == "true", untied || value == "false"
		return false, nil
	})
	return tied, untied
}

// headClasses are the ends of the names of classes of transformers that have a head of the size of the vocabulary.
var headClasses = []string{"ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining", "ForConditionalGeneration"}

// ofVocabulary reports whether a tensor with this name has a row for each token: an embedding, a head, or the bias of a head.
func ofVocabulary(name string) bool {
	if module, is := strings.CutSuffix(name, ".bias"); is {
		name = module + ".weight"
	}
	return tensorname.IsEmbedding(name) || tensorname.IsHead(name)
}

// resize records the new size of the vocabulary if an adapter has whole embeddings with more or
// fewer rows than those of the base. All tensors with a row for each token must have the new size, and
// config.json must contain the old one.
func (w *copyJob) resize(got *merge.Adapted) error {
	for _, name := range slices.Sorted(maps.Keys(got.Rows)) {
		rows := got.Rows[name]
		now := resizing{rows[0], rows[1]}
		switch {
		case !ofVocabulary(name):
			return fmt.Errorf("it has %d rows of %q, the base has %d: only embeddings can have another size; --except of cp leaves the tensor out of the adapter", now.to, name, now.from)
		case w.resized != resizing{} && w.resized != now:
			return fmt.Errorf("it has %d rows of %q, but %d rows of other embeddings", now.to, name, w.resized.to)
		}
		w.resized = now
	}
	if w.resized == (resizing{}) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(got.Tensors)) {
		if shape := got.Tensors[name].Shape(); ofVocabulary(name) && len(shape) > 0 && shape[0] == w.resized.from {
			more := fmt.Sprintf("%d more", w.resized.to-w.resized.from)
			if w.resized.to < w.resized.from {
				more = fmt.Sprintf("%d fewer", w.resized.from-w.resized.to)
			}
			return fmt.Errorf("its embeddings have %d rows, %s than the base, where %q stays at %d rows: the vocabulary would have two sizes",
				w.resized.to, more, name, w.resized.from)
		}
	}
	return nil
}
