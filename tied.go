package safetensors

import (
	"fmt"
	"maps"
	"slices"

	"github.com/gosafetensors/safetensors/internal/mem"
)

// Tie returns a checkpoint in which each data is held by one name only, as
// safetensors.torch.save_model of Python writes it: of tensors that share their
// data, it keeps the one whose name sorts first, and notes each other name in the
// metadata, with the kept name as its value. Metadata under such a name stays as
// it is. load_model and Untie give the names back.
//
// Tensors share their data if they are the same part of one file or of one slice,
// with the same dtype and shape; Tie finds out without reading it. Tensors without
// elements are not shared. Neither map is modified; nil metadata stays nil if
// nothing is shared.
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

// Untie returns a checkpoint with the names that Tie, or save_model of Python, took
// out: for each metadata key that is no tensor and whose value names one, that
// tensor again. It modifies neither map.
func Untie(tensors map[string]Tensor, metadata map[string]string) map[string]Tensor {
	all := make(map[string]Tensor, len(tensors))
	maps.Copy(all, tensors)
	for name, keep := range metadata {
		t, ok := tensors[keep]
		if _, taken := tensors[name]; ok && !taken {
			all[name] = t
		}
	}
	return all
}

// identity returns a comparable value that two tensors have in common if they have
// the same elements of the same data. Tensors without elements have none.
func (t Tensor) identity() (id any, ok bool) {
	if t.Size() == 0 {
		return nil, false
	}
	if t.concat != nil {
		return t.concat, true
	}
	type key struct {
		where any // the source, or the address of its memory
		off   int64
		how   string
	}
	k := key{t.src, t.off, fmt.Sprint(t.dtype, t.shape, t.dtypes)}
	if t.strided != nil { // strides of dimensions of size 1 say nothing
		g, _ := newGather(t.stored(), t.strided)
		k.how += fmt.Sprint(g)
	}
	switch {
	case t.computed != nil:
		k.where = t.computed
	case t.src.mem != nil:
		k.where, k.off = mem.Address(t.src.mem[t.off:]), 0
	}
	return k, true
}
