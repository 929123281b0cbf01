package safetensors

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// Tie drops tensors that share their data with another. The name that sorts first
// stays; the metadata maps each dropped name to it, as save_model of Python does.
// Tensors share data if they are the same part of one file or slice, with the same
// dtype and shape, and have elements. Tie reads nothing and modifies neither map.
func Tie(tensors map[string]Tensor, metadata map[string]string) (map[string]Tensor, map[string]string) {
	kept := make(map[string]Tensor, len(tensors))
	noted := maps.Clone(metadata)
	first := make(map[any]string)
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		t := tensors[name]
		id, ok := t.identity()
		keep, shared := first[id]
		if !ok || !shared {
			first[id] = name
			kept[name] = t
			continue
		}
		if noted == nil {
			noted = make(map[string]string)
		}
		if _, taken := noted[name]; !taken {
			noted[name] = keep
		}
	}
	return kept, noted
}

// Untie returns tensors with the names that Tie or save_model dropped: for each
// metadata key that names no tensor, the tensor that its value names. The metadata comes
// without these keys. Untie modifies neither map.
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

// aliases yields the pairs of metadata that stand for a tensor that Tie dropped: its
// name, and that of the tensor with the same data.
func aliases[V any](metadata map[string]string, tensors map[string]V) iter.Seq2[string, string] {
	return func(yield func(name, keep string) bool) {
		for name, keep := range metadata {
			_, kept := tensors[keep]
			if _, taken := tensors[name]; kept && !taken && !yield(name, keep) {
				return
			}
		}
	}
}

// identity returns a comparable value that two tensors have in common if they have
// the same elements of the same data. Tensors without elements have none.
func (t Tensor) identity() (id any, ok bool) {
	if t.Size() == 0 {
		return nil, false
	}
	if t.concat != nil {
		type joined struct {
			before, piece any
			dim           int
		}
		for _, p := range t.concat.pieces {
			piece, _ := p.identity()
			id = joined{id, piece, t.concat.dim}
		}
		return id, true
	}
	type key struct {
		where any // the source, or the address of its memory
		off   int64
		how   string
	}
	k := key{t.src, t.off, fmt.Sprint(t.dtype, t.shape, t.dtypes)}
	if t.strides != nil { // those of dimensions of size 1 say nothing
		g, _ := t.gather()
		k.how += fmt.Sprint(g.loops)
	}
	if data, _ := t.src.memory(); data != nil {
		k.where, k.off = mem.Address(data[t.off:]), 0
	} else if t.src.tensor != nil {
		k.where, _ = t.src.tensor.identity()
	}
	return k, true
}
