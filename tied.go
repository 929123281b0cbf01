package safetensors

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// Tie returns tensors without those that share their data with another one. Of tensors with the
// same data, the name that sorts first stays, and the metadata maps each dropped name to it, as
// save_model of Python does. A key that the metadata already has is not replaced. Tensors share
// data if they are the same part of one file or slice, with the same dtype and shape, and have
// elements. Tie reads nothing and modifies neither map.
//
// Give the metadata "format": "pt" if programs in Python load the file: accelerate and
// huggingface_hub refuse a file that has metadata without this key.
//
// The metadata contains names of tensors. To rename or drop tensors of a file that may have tied
// ones, call Untie first, change the map, and call Tie before writing it: see the example of Untie.
func Tie(tensors map[string]Tensor, metadata map[string]string) (map[string]Tensor, map[string]string) {
	unique := make(map[string]Tensor, len(tensors))
	noted := maps.Clone(metadata)
	first := make(map[any]string)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		id, ok := t.identity()
		keep, shared := first[id]
		if !ok || !shared {
			first[id] = name
			unique[name] = t
			continue
		}
		if noted == nil {
			noted = make(map[string]string)
		}
		if _, taken := noted[name]; !taken {
			noted[name] = keep
		}
	}
	return unique, noted
}

// Untie adds the names that Tie or save_model dropped: each metadata key that is not the name of
// a tensor, but whose value is, becomes another name of that tensor. The metadata is returned
// without these keys. Untie modifies neither map.
//
// If a tensor is renamed without Untie, its other names are lost, because the metadata still refers
// to its old name.
func Untie(tensors map[string]Tensor, metadata map[string]string) (map[string]Tensor, map[string]string) {
	all := make(map[string]Tensor, len(tensors))
	maps.Copy(all, tensors)
	rest := maps.Clone(metadata)
	for name, keep := range aliases(metadata, tensors) {
		all[name] = tensors[keep]
		delete(rest, name)
	}
	return all, rest
}

// aliases yields the metadata that records tensors which Tie dropped: the dropped name, and the
// name of the tensor with the same data.
func aliases[V any](metadata map[string]string, tensors map[string]V) iter.Seq2[string, string] {
	return func(yield func(name, keep string) bool) {
		for name, keep := range metadata {
			_, exists := tensors[keep]
			if _, taken := tensors[name]; exists && !taken && !yield(name, keep) {
				return
			}
		}
	}
}

// identity returns a comparable value that is equal for two tensors if they select the same
// elements of the same data. ok is false for tensors without elements.
func (t Tensor) identity() (id any, ok bool) {
	if t.Size() == 0 {
		return nil, false
	}
	type key struct {
		data any // the origin, or a value that identifies its bytes
		off  int64
		how  string
	}
	k := key{t.origin, t.off, fmt.Sprint(t.dtype, t.shape, t.dtypes)}
	if t.strides != nil { // the strides of dimensions of size 1 do not matter
		g, _ := t.gather()
		k.how += fmt.Sprint(g.loops)
	}
	switch from := t.origin.(type) {
	case *source:
		if data, _ := from.memory(); data != nil {
			k.data, k.off = mem.Address(data[t.off:]), 0
		}
	case *through:
		k.data, _ = from.identity()
	case *concat:
		type joined struct {
			before, piece any
			dim           int
		}
		k.data = nil
		for _, p := range from.pieces {
			piece, _ := p.identity()
			k.data = joined{k.data, piece, from.dim}
		}
	}
	return k, true
}
