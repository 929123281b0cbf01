package torch

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/internal/pickle"
	"github.com/gosafetensors/safetensors/internal/shapetext"
	"github.com/gosafetensors/safetensors/internal/variant"
)

// bareTensor is the name of the tensor in a file that contains only one tensor, without a dict.
const bareTensor = "tensor"

// A dict is a container of tensors, or a single tensor, with the key that selects it: "" at the top
// level.
type dict struct {
	key   string
	value any
}

// choose returns the dict that a key selects. An empty key selects the top level if that has
// tensors, and otherwise the only dict that has tensors.
func choose(top any, key string) (dict, error) {
	n := newContained()
	d, err := n.choose(top, key)
	if n.exhausted() {
		return dict{}, errTooMuch
	}
	return d, err
}

func (n *contained) choose(top any, key string) (dict, error) {
	if key != "" {
		found := n.find(top, key)
		if len(found) == 0 {
			return dict{}, n.withCandidates(fmt.Sprintf("there is no %.200q", key), top)
		}
		with := slices.DeleteFunc(slices.Clone(found), func(v any) bool { return n.tensorsIn(v) == 0 })
		switch len(with) {
		case 0:
			return dict{}, n.withCandidates(fmt.Sprintf("%.200q is %s without tensors", key, pickle.Describe(found[0])), top)
		case 1:
			return dict{key, with[0]}, nil
		}
		return dict{}, fmt.Errorf("%.200q may be any of %d entries", key, len(with))
	}
	switch {
	case isTensor(top) || isContainer(top) && (n.isEmpty(top) || n.directTensors(top)):
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
		return dict{}, n.withCandidates("no tensors at the top level", top)
	}
	return only, nil
}

// isTensor reports whether a value is a tensor of any kind, even if it cannot be read.
func isTensor(v any) bool {
	if o, ok := v.(*pickle.Object); ok {
		return otherKind(o) != "" || rebuilders[o.Class] > 0
	}
	_, ok := v.(*tensor)
	return ok
}

// isContainer reports whether a value is a container, which may be empty: a module, or see isPlain.
func isContainer(v any) bool {
	_, isModule := moduleOf(v)
	return isModule || isPlain(v)
}

// isPlain reports whether a value is a container that is not a module.
func isPlain(v any) bool { return plain(v) != nil }

// plain returns v if it is a Dict, a List or a Tuple. For an object on which items were set, as on
// a subclass of dict, it returns the Dict of these items. For any other value it returns nil.
func plain(v any) any {
	switch v := v.(type) {
	case *pickle.Dict, *pickle.List, pickle.Tuple:
		return v
	case *pickle.Object:
		if v.Dict != nil && v.List == nil && v.Why == nil && otherKind(v) == "" {
			return v.Dict
		}
	}
	return nil
}

// maxLooks limits how many entries of containers are looked at in a file. An entry counts each time
// that it is looked at.
const maxLooks = 1 << 25

// A contained caches properties of containers by their identity, because a container may be
// referenced many times.
type contained struct {
	tensors map[any]int // number of tensors in each container
	sets    map[*pickle.List]map[string]bool
	looks   int
}

func newContained() *contained {
	return &contained{tensors: make(map[any]int), sets: make(map[*pickle.List]map[string]bool)}
}

// look counts n entries that are about to be looked at. It returns false if there are too many.
func (c *contained) look(n int) bool {
	c.looks += n
	return !c.exhausted()
}

// exhausted reports whether too many entries were looked at. The results of all other methods are
// then incomplete.
func (c *contained) exhausted() bool { return c.looks > maxLooks }

// entries yields the entries of a container. The keys of a list are its indices. It copies nothing,
// because a list may be referenced a million times, and each iteration may end at the first item.
func (c *contained) entries(v any) iter.Seq[pickle.Entry] {
	var items []any
	switch v := plain(v).(type) {
	case *pickle.Dict:
		return func(yield func(pickle.Entry) bool) {
			for _, e := range v.Entries {
				if !c.look(1) || !yield(e) {
					return
				}
			}
		}
	case *pickle.List:
		items = v.Items
	case pickle.Tuple:
		items = v
	}
	if m, ok := moduleOf(v); ok {
		return c.moduleEntries(m)
	}
	return func(yield func(pickle.Entry) bool) {
		for i, item := range items {
			if !c.look(1) || !yield(pickle.Entry{Key: int64(i), Value: item}) {
				return
			}
		}
	}
}

// isEmpty reports whether v is a dict, a list or a tuple without entries.
func (c *contained) isEmpty(v any) bool {
	for range c.entries(v) {
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

// find returns the values that a key leads to, each container and tensor once. A key consists of
// names joined by dots. There may be several such values, because names may contain dots, and a
// number may be a name.
func (c *contained) find(top any, key string) (found []any) {
	type place struct { // a container, and the length of the rest of the key, which selects within it
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
		for e := range c.entries(v) {
			name, ok := keyText(e.Key)
			rest, starts := strings.CutPrefix(key, name)
			switch {
			case !ok || !starts:
			case rest == "":
				id := identity(e.Value)
				if isTensor(e.Value) {
					id = e.Value
				}
				if first(id) { // all values without an identity share the id nil, so only one of them is added
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

// maxDepth limits how deep nested containers are searched. No real checkpoint is nested that deep.
// The search of a container that contains itself also ends there.
const maxDepth = 64

// tensorsIn returns the number of tensors in a value and in the containers in it.
func (c *contained) tensorsIn(v any) int { return c.countTensors(v, maxDepth) }

// countTensors is like tensorsIn, but looks only into depth levels of containers.
func (c *contained) countTensors(v any, depth int) int {
	if isTensor(v) {
		return 1
	}
	id := identity(v)
	if id == nil || depth == 0 {
		return 0
	}
	if n, ok := c.tensors[id]; ok {
		return n
	}
	c.tensors[id] = 0 // the count if the container contains itself
	n := 0
	for e := range c.entries(v) {
		n = min(n+c.countTensors(e.Value, depth-1), 1<<30)
	}
	c.tensors[id] = n
	return n
}

// identity returns a key that identifies a container. It is nil for an empty tuple, and for a value
// that is not a container.
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

// directTensors reports whether a container has a tensor among its entries, or anywhere within an
// entry whose key is not a string. For a module, it reports whether there is any tensor in it.
func (c *contained) directTensors(v any) bool {
	if !isPlain(v) {
		return c.tensorsIn(v) > 0
	}
	for e := range c.entries(v) {
		if _, named := e.Key.(string); isTensor(e.Value) || !named && c.tensorsIn(e.Value) > 0 {
			return true
		}
	}
	return false
}

// withCandidates returns an error that ends with advice: the keys of the dicts with tensors, if there are any.
func (c *contained) withCandidates(text string, top any) error {
	const maxNamed = 10
	var named []string
	n := 0
	for d := range c.dicts(top, false) {
		if n++; n <= maxNamed {
			named = append(named, fmt.Sprintf("%.200q (%s)", d.key, shapetext.Count(c.tensorsIn(d.value), "tensor")))
		}
	}
	switch {
	case n == 0 && (isTensor(top) || isContainer(top) && c.directTensors(top)):
		return variant.TopLevel{Text: text + "; its tensors are at the top level, which needs no key"}
	case n == 0:
		return errors.New(text + "; no dict in it holds tensors")
	case n > maxNamed:
		named = append(named, fmt.Sprintf("%d more", n-maxNamed))
	}
	return errors.New(text + "; " + variant.KeySelects + strings.Join(named, ", "))
}

// dicts yields the dicts below the top level that have tensors, each once. It yields dicts within
// such a dict only if nested is true.
func (c *contained) dicts(top any, nested bool) iter.Seq[dict] {
	return func(yield func(dict) bool) {
		seen := make(map[any]bool)
		var visit func(v any, path string, depth int) bool
		visit = func(v any, path string, depth int) bool {
			id := identity(v)
			if id == nil || seen[id] || depth == 0 {
				return true
			}
			seen[id] = true
			if path != "" && c.directTensors(v) {
				if more := yield(dict{path, v}); !more || !nested {
					return more
				}
			}
			for e := range c.entries(v) {
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

// maxPath limits the keys that Keys returns and that errors suggest: they have fewer bytes than
// this, not counting the last dot.
const maxPath = 1000

// join appends a name to a path, after a dot.
func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// errTooDeep reports that a container is nested too deeply.
var errTooDeep = errors.New("it is nested too deeply, or contains itself")
