package torch

import (
	"iter"

	"github.com/gosafetensors/safetensors/internal/pickle"
)

// A module is a torch.nn.Module by its attributes, the same names in every version. It
// is the dict that its state_dict would return, but for what hooks of the program change.
type module struct {
	parts   [3]*pickle.Dict // parameters, buffers, modules
	without []any           // names of the buffers that state_dict leaves out
}

// moduleOf returns a value as a module.
func moduleOf(v any) (m module, ok bool) {
	o, ok := v.(*pickle.Object)
	if !ok {
		return m, false
	}
	state, ok := o.State.(*pickle.Dict)
	if !ok || isQuantized(o.Class) {
		return m, false
	}
	for i, name := range []string{"_parameters", "_buffers", "_modules"} {
		part, _ := state.Get(name)
		if m.parts[i], ok = part.(*pickle.Dict); !ok {
			return m, false
		}
	}
	if names, has := state.Get("_non_persistent_buffers_set"); has {
		var set *pickle.List
		if set, ok = pickle.Set(names); ok {
			m.without = set.Items
		}
	}
	return m, ok
}

// size is how many names there are to look at, those of what is not there, too.
func (m module) size() int {
	n := len(m.without)
	for _, part := range m.parts {
		n += len(part.Entries)
	}
	return n
}

// entries yields the parameters, the buffers and the modules that are there.
func (m module) entries() iter.Seq[pickle.Entry] {
	const buffers = 1
	return func(yield func(pickle.Entry) bool) {
		without := make(map[string]bool) // other keys are no names, and some cannot be compared
		for _, name := range m.without {
			if name, ok := name.(string); ok {
				without[name] = true
			}
		}
		for i, part := range m.parts {
			for _, e := range part.Entries {
				if name, _ := e.Key.(string); e.Value == nil || i == buffers && without[name] {
					continue
				}
				if !yield(e) {
					return
				}
			}
		}
	}
}
