package dcp

import (
	"fmt"
	"strings"

	"github.com/gosafetensors/safetensors/internal/pickle"
)

const torchModules = "torch.distributed."

// torchFields returns the attributes of an object if its class has this name and belongs to
// torch.distributed, whose classes have moved between modules.
func torchFields(v any, class string) (fields *pickle.Dict, ok bool) {
	o, ok := v.(*pickle.Object)
	if !ok || o.Class.Name != class || !strings.HasPrefix(o.Class.Module, torchModules) {
		return nil, false
	}
	state := o.State
	if slots, isPair := state.(pickle.Tuple); isPair && len(slots) == 2 && slots[0] == nil {
		state = slots[1] // for a class with __slots__, Python writes the pair (None, attributes)
	}
	fields, ok = state.(*pickle.Dict)
	return fields, ok
}

// items returns the items of a list or a tuple.
func items(v any) ([]any, bool) {
	switch v := v.(type) {
	case *pickle.List:
		return v.Items, true
	case pickle.Tuple:
		return v, true
	}
	return nil, false
}

// sizes returns the integers in a list or a tuple. It is an error if there are more than most, or
// if one is negative.
func sizes(v any, most int) ([]int, error) {
	if list, ok := v.(*pickle.List); ok {
		v = pickle.Tuple(list.Items)
	}
	return naturals(v, most)
}

// naturals returns the integers in a tuple. It is an error if there are more than most, or if one is
// negative.
func naturals(v any, most int) ([]int, error) {
	out, err := pickle.Ints[int](v, most)
	for _, n := range out {
		if n < 0 && err == nil {
			err = fmt.Errorf("%d is negative", n)
		}
	}
	return out, err
}
