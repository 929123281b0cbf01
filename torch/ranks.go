package torch

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gosafetensors/safetensors"
	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/prefix"
	"github.com/gosafetensors/safetensors/internal/rankfile"
)

func init() { rankfile.Open = openRank }

// errPart returns the error for a file that holds only one rank's part of a tensor.
func errPart(name string, part *pickle.Object) error {
	class, _ := rankfile.IsPart(part)
	return fmt.Errorf("entry %.200q: %w", name, prefix.Unsupported{Err: fmt.Errorf("a %s, a rank's part: open a folder with the files of all ranks of this model and no others, with names such as model_rank_3.pt", class)})
}

// openRank opens the file of one rank for package dcp. If key is empty and several dicts hold
// tensors, it takes the dict "model".
func openRank(r io.ReaderAt, size int64, key string) (*rankfile.File, error) {
	s := &session{operation: newOperation()}
	top, file, err := load(r, size, s)
	if err != nil {
		return nil, err
	}
	d, inner, err := chooseOfRank(top, key)
	if err != nil {
		return nil, err
	}
	f, err := flatten(d, s.operation)
	if err != nil {
		return nil, broken("", err)
	}
	v := newViews(r, file, size)
	if err := cmp.Or(v.find(f.tensors), v.find(localTensors(f))); err != nil {
		return nil, broken("", err)
	}
	opened := &rankfile.File{Metadata: f.metadata, Skipped: make(map[string]error), Inner: inner, Tensor: tensorsOf(v)}
	for name, t := range f.tensors {
		opened.Entries = append(opened.Entries, rankfile.Entry{Name: name, Plain: t})
	}
	for name, part := range f.parts {
		opened.Entries = append(opened.Entries, rankfile.Entry{Name: name, Part: part})
	}
	for name, why := range f.refused {
		if !f.objects[name] {
			opened.Entries = append(opened.Entries, rankfile.Entry{Name: name, Why: prefix.Unsupported{Err: why}})
			continue
		}
		opened.Skipped[name] = why
	}
	slices.SortFunc(opened.Entries, func(a, b rankfile.Entry) int { return strings.Compare(a.Name, b.Name) })
	return opened, nil
}

// chooseOfRank returns the dict that key selects from the file of a rank. If key is empty and
// several dicts hold tensors, it selects the dict "model". inner is the key of a dict in the
// selected one that is probably the model itself, or "".
func chooseOfRank(top any, key string) (d dict, inner string, err error) {
	const model = "model" // the key that dinov2, torchtitan and others use
	d, err = choose(top, key)
	if key != "" {
		return d, "", err
	}
	inModel, missing := choose(top, model)
	switch {
	case err != nil && missing != nil:
		return d, "", err
	case err != nil:
		return inModel, "", nil
	case missing == nil && d.key != model:
		return d, model, nil
	}
	return d, "", nil
}

// localTensors returns one of the parts' local tensors for each storage, so that all storages are
// found in one call. It visits each value once, however deep it is nested.
func localTensors(f *flattened) map[string]*tensor {
	all := make(map[string]*tensor)
	seen := make(map[any]bool)
	var unvisited []any
	for _, part := range f.parts {
		unvisited = append(unvisited, part)
	}
	for len(unvisited) > 0 {
		v := unvisited[len(unvisited)-1]
		unvisited = unvisited[:len(unvisited)-1]
		id := v
		switch v := v.(type) {
		case *tensor:
			all[v.storage.key] = v
			continue
		case pickle.Tuple:
			if id = nil; len(v) > 0 {
				id = &v[0]
			}
		case *pickle.Object, *pickle.Dict, *pickle.List:
		default:
			continue
		}
		if seen[id] {
			continue
		}
		seen[id] = true
		switch v := v.(type) {
		case pickle.Tuple:
			unvisited = append(unvisited, v...)
		case *pickle.List:
			unvisited = append(unvisited, v.Items...)
		case *pickle.Dict:
			for _, e := range v.Entries {
				unvisited = append(unvisited, e.Value)
			}
		case *pickle.Object:
			unvisited = append(unvisited, v.State, v.Args)
		}
	}
	return all
}

// tensorsOf returns a func that converts a value of the pickle to a tensor. Calls with the same
// value return the same tensor.
func tensorsOf(v *views) func(any) (safetensors.Tensor, error) {
	known := make(map[*tensor]safetensors.Tensor)
	return func(value any) (made safetensors.Tensor, err error) {
		t, ok := value.(*tensor)
		if o, isObject := value.(*pickle.Object); isObject && (o.Why != nil || isTensor(o)) {
			return made, prefix.Unsupported{Err: notTensor(o, false)}
		}
		if !ok {
			return made, fmt.Errorf("expected a tensor, found %s", pickle.Describe(value))
		}
		if made, ok = known[t]; ok {
			return made, nil
		}
		if made, err = v.tensor(t); err == nil {
			known[t] = made
		}
		return made, err
	}
}
