package torch

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/internal/pickle"
)

// bareTensor is the name of the tensor of a file that holds nothing else.
const bareTensor = "tensor"

// A dict is a container of tensors by its key, "" at the top level; or a tensor.
type dict struct {
	key   string
	value any
}

// choose returns what a key selects. If it is empty, that is the top level, or the only dict
// that holds tensors.
func choose(top any, key string) (dict, error) {
	n := make(counts)
	if key != "" {
		found := find(top, key)
		if len(found) == 0 {
			return dict{}, fmt.Errorf("there is no %.200q; %s", key, n.candidates(top))
		}
		with := slices.DeleteFunc(slices.Clone(found), func(v any) bool { return n.of(v) == 0 })
		switch len(with) {
		case 0:
			return dict{}, fmt.Errorf("%.200q is %s without tensors; %s", key, pickle.Describe(found[0]), n.candidates(top))
		case 1:
			return dict{key, with[0]}, nil
		}
		return dict{}, fmt.Errorf("%.200q may be any of %d entries", key, len(with))
	}
	switch {
	case isTensor(top) || isContainer(top) && (isEmpty(top) || n.holds(top)):
		return dict{"", top}, nil
	case !isPlain(top):
		return dict{}, fmt.Errorf("it holds %s, not tensors; save the state dict alone (torch.save(model.state_dict(), …))", pickle.Describe(top))
	}
	var only dict
	found := 0
	for d := range n.dicts(top, false) {
		if only, found = d, found+1; found > 1 {
			break
		}
	}
	if found != 1 {
		return dict{}, fmt.Errorf("no tensors at the top level; %s", n.candidates(top))
	}
	return only, nil
}

func isTensor(v any) bool {
	if o, ok := v.(*pickle.Object); ok {
		return otherKind(o) != "" || rebuilders[o.Class] > 0
	}
	_, ok := v.(*tensor)
	return ok
}

// isContainer reports whether a value has entries.
func isContainer(v any) bool {
	_, isModule := moduleOf(v)
	return isModule || isPlain(v)
}

// isPlain reports whether a value is a container that is no module.
func isPlain(v any) bool {
	switch v.(type) {
	case *pickle.Dict, *pickle.List, pickle.Tuple:
		return true
	}
	return false
}

// entriesOf yields the entries of a container; those of a list by their numbers. A list
// may be in a million places, of which each ends at its first item: nothing is copied.
func entriesOf(v any) iter.Seq[pickle.Entry] {
	var items []any
	switch v := v.(type) {
	case *pickle.Dict:
		return slices.Values(v.Entries)
	case *pickle.List:
		items = v.Items
	case pickle.Tuple:
		items = v
	default:
		if m, ok := moduleOf(v); ok {
			return m.entries()
		}
	}
	return func(yield func(pickle.Entry) bool) {
		for i, item := range items {
			if !yield(pickle.Entry{Key: int64(i), Value: item}) {
				return
			}
		}
	}
}

func isEmpty(v any) bool {
	for range entriesOf(v) {
		return false
	}
	return isPlain(v)
}

// keyText returns a key as a part of a path, if it is a string or an integer.
func keyText(key any) (string, bool) {
	switch key := key.(type) {
	case string:
		return key, true
	case int64:
		return strconv.FormatInt(key, 10), true
	}
	return "", false
}

// find returns what a key of names joined by dots leads to, each container and tensor once.
// Names may have dots themselves, and a number is a name, so that there may be several.
func find(top any, key string) (found []any) {
	type place struct { // a container, and how much of the key is left there
		container any
		left      int
	}
	seen := make(map[any]bool)
	first := func(id any) bool {
		known := seen[id]
		seen[id] = true
		return !known
	}
	var visit func(v any, key string)
	visit = func(v any, key string) {
		if id := identity(v); id == nil || !first(place{id, len(key)}) {
			return
		}
		for e := range entriesOf(v) {
			name, ok := keyText(e.Key)
			rest, within := strings.CutPrefix(key, name)
			switch {
			case !ok || !within:
			case rest == "":
				id := identity(e.Value)
				if isTensor(e.Value) {
					id = e.Value
				}
				if first(id) { // nil for all others
					found = append(found, e.Value)
				}
			case rest[0] == '.':
				visit(e.Value, rest[1:])
			}
		}
	}
	visit(top, key)
	return found
}

// maxDepth is how deep containers are looked into: no checkpoint is as deep, and
// those that contain themselves end there.
const maxDepth = 64

// counts are how many tensors are in containers, by their identity: one may be in many
// places.
type counts map[any]int

// of returns how many tensors a value consists of.
func (c counts) of(v any) int { return c.within(v, maxDepth) }

func (c counts) within(v any, depth int) int {
	if isTensor(v) {
		return 1
	}
	id := identity(v)
	if id == nil || depth == 0 {
		return 0
	}
	if n, ok := c[id]; ok {
		return n
	}
	c[id] = 0 // of a container in itself
	n := 0
	for e := range entriesOf(v) {
		n = min(n+c.within(e.Value, depth-1), 1<<30)
	}
	c[id] = n
	return n
}

// identity returns the same for the same container, nil for an empty tuple and for any
// other value.
func identity(v any) any {
	switch v := v.(type) {
	case *pickle.Dict, *pickle.List:
		return v
	case pickle.Tuple:
		if len(v) > 0 {
			return &v[0]
		}
	case *pickle.Object:
		if isContainer(v) {
			return v
		}
	}
	return nil
}

// holds reports whether a container has tensors as entries, or below entries that have
// numbers in place of names, or is a module with tensors.
func (c counts) holds(v any) bool {
	if !isPlain(v) {
		return c.of(v) > 0
	}
	for e := range entriesOf(v) {
		if _, named := e.Key.(string); isTensor(e.Value) || !named && c.of(e.Value) > 0 {
			return true
		}
	}
	return false
}

// candidates names the dicts that hold tensors, by their keys.
func (c counts) candidates(top any) string {
	const maxNamed = 10
	var named []string
	n := 0
	for d := range c.dicts(top, false) {
		if n++; n <= maxNamed {
			named = append(named, fmt.Sprintf("%.200q (%s)", d.key, tensors(c.of(d.value))))
		}
	}
	switch {
	case n == 0:
		return "no dict in it holds tensors"
	case n > maxNamed:
		named = append(named, fmt.Sprintf("%d more", n-maxNamed))
	}
	return "a key selects one of " + strings.Join(named, ", ")
}

// dicts yields the dicts below the top level that hold tensors, each once; those in
// such a dict only if within is true.
func (c counts) dicts(top any, within bool) iter.Seq[dict] {
	return func(yield func(dict) bool) {
		seen := make(map[any]bool)
		var visit func(v any, path string, depth int) bool
		visit = func(v any, path string, depth int) bool {
			id := identity(v)
			if id == nil || seen[id] || depth == 0 {
				return true
			}
			seen[id] = true
			if path != "" && c.holds(v) {
				if more := yield(dict{path, v}); !more || !within {
					return more
				}
			}
			for e := range entriesOf(v) {
				name, ok := keyText(e.Key)
				if ok && len(path)+len(name) < maxPath && !visit(e.Value, join(path, name), depth-1) {
					return false
				}
			}
			return true
		}
		visit(top, "", maxDepth)
	}
}

// maxPath is the most bytes in a key that is suggested.
const maxPath = 1000

func tensors(n int) string {
	if n == 1 {
		return "1 tensor"
	}
	return fmt.Sprintf("%d tensors", n)
}

// join adds a part to a path.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// errSelf is the error of a container that is too deep.
var errSelf = errors.New("it is nested too deeply, or contains itself")
