package torch

import (
	"iter"

	"github.com/gosafetensors/safetensors/internal/pickle"
)

// A module is a torch.nn.Module, recognized by its attributes, which have the same names in every
// version of PyTorch. It is read as the dict that its state_dict would return, without changes by
// hooks of the program.
type module struct {
	parts   [3]*pickle.Dict // parameters, buffers and modules, in this order
	without *pickle.List    // names of the buffers that state_dict leaves out; nil if there is no such set
}

// moduleOf returns v as a module. ok is false if v is not one.
func moduleOf(v any) (m module, ok bool) {
	o, ok := v.(*pickle.Object)
	if !ok {
		return m, false
	}
	state, ok := o.State.(*pickle.Dict)
	if !ok || isQuantized(o.Class) || o.Dict != nil || o.List != nil {
		return m, false
	}
	for i, name := range []string{"_parameters", "_buffers", "_modules"} {
		part, _ := state.Get(name)
		if m.parts[i], ok = part.(*pickle.Dict); !ok {
			return m, false
		}
	}
	if names, has := state.Get("_non_persistent_buffers_set"); has {
		m.without, ok = pickle.Set(names)
	}
	return m, ok
}

// size returns the number of names to look at, including those whose value is None.
func (m module) size() (n int) {
	if m.without != nil {
		n = len(m.without.Items)
	}
	for _, part := range m.parts {
		n += len(part.Entries)
	}
	return n
}

// moduleEntries yields the entries of state_dict: the parameters, buffers and modules that are not
// None.
func (c *contained) moduleEntries(m module) iter.Seq[pickle.Entry] {
	const buffers = 1
	return func(yield func(pickle.Entry) bool) {
		without := c.names(m.without)
		for i, part := range m.parts {
			for _, e := range part.Entries {
				if !c.look(1) {
					return
				}
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

// names returns the strings in a set. It caches them, because many modules may share a set.
func (c *contained) names(set *pickle.List) map[string]bool {
	if set == nil {
		return nil
	}
	names, known := c.sets[set]
	if !known && c.look(len(set.Items)) {
		names = make(map[string]bool)
		for _, name := range set.Items {
			if name, ok := name.(string); ok { // other items are not names, and some cannot be keys of a map
				names[name] = true
			}
		}
		c.sets[set] = names
	}
	return names
}
