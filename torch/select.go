package torch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/gosafetensors/safetensors/internal/pickle"
)

// BareTensor is the name of the tensor of a file that holds nothing else.
const BareTensor = "tensor"

// choose returns what a key selects, or the top level, and a name for it if it is a
// tensor. A container holds tensors, or nothing at all.
func choose(top any, key string) (value any, name string, err error) {
	n := make(counts)
	if key != "" {
		value, ok := lookUp(top, key)
		switch {
		case !ok:
			return nil, "", fmt.Errorf("there is no %.200q; %s", key, n.candidates(top))
		case n.of(value) == 0:
			return nil, "", fmt.Errorf("%.200q is %s without tensors; %s", key, pickle.Describe(value), n.candidates(top))
		}
		return value, key[strings.LastIndexByte(key, '.')+1:], nil
	}
	switch {
	case isTensor(top):
		return top, BareTensor, nil
	case !isContainer(top):
		return nil, "", fmt.Errorf("it holds %s, not tensors; save the state dict alone (torch.save(model.state_dict(), …))", pickle.Describe(top))
	case !isEmpty(top) && !n.holds(top):
		return nil, "", fmt.Errorf("no tensors at the top level; %s", n.candidates(top))
	}
	return top, "", nil
}

func isTensor(v any) bool {
	if o, ok := v.(*pickle.Object); ok {
		return otherTensors[o.Class.String()] != "" || o.Class == rebuildTensorV2 || o.Class == rebuildTensorV3
	}
	_, ok := v.(*tensor)
	return ok
}

func isContainer(v any) bool {
	switch v.(type) {
	case *pickle.Dict, *pickle.List, pickle.Tuple:
		return true
	}
	return false
}

// itemsOf returns the items of a list or tuple.
func itemsOf(v any) []any {
	switch v := v.(type) {
	case *pickle.List:
		return v.Items
	case pickle.Tuple:
		return v
	}
	return nil
}

// entriesOf yields the entries of a container; those of a list by their numbers. A list
// may be in a million places, of which each ends at its first item: nothing is copied.
func entriesOf(v any) iter.Seq2[int, pickle.Entry] {
	return func(yield func(int, pickle.Entry) bool) {
		if d, ok := v.(*pickle.Dict); ok {
			slices.All(d.Entries)(yield)
			return
		}
		for i, item := range itemsOf(v) {
			if !yield(i, pickle.Entry{Key: int64(i), Value: item}) {
				return
			}
		}
	}
}

func isEmpty(v any) bool {
	d, ok := v.(*pickle.Dict)
	return len(itemsOf(v)) == 0 && (!ok || len(d.Entries) == 0)
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

// get returns an entry of a container.
func get(v any, key string) (value any, ok bool) {
	if d, isDict := v.(*pickle.Dict); isDict {
		if value, ok := d.Get(key); ok {
			return value, true
		}
	}
	i, err := strconv.ParseInt(key, 10, 64)
	if err != nil {
		return nil, false
	}
	for _, e := range entriesOf(v) {
		if e.Key == any(i) {
			return e.Value, true
		}
	}
	return nil, false
}

// lookUp follows a key of names joined by dots. A name may have dots itself: the
// longest that fits is tried first.
func lookUp(v any, key string) (any, bool) {
	if found, ok := get(v, key); ok {
		return found, true
	}
	for i := strings.LastIndexByte(key, '.'); i >= 0; i = strings.LastIndexByte(key[:i], '.') {
		if inner, ok := get(v, key[:i]); ok {
			if found, ok := lookUp(inner, key[i+1:]); ok {
				return found, true
			}
		}
	}
	return nil, false
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
	for _, e := range entriesOf(v) {
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
	}
	return nil
}

// holds reports whether a container has tensors as entries, or below entries that have
// numbers in place of names.
func (c counts) holds(v any) bool {
	for _, e := range entriesOf(v) {
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
	more := 0
	for path, v := range c.keys(top) {
		if len(named) < maxNamed {
			named = append(named, fmt.Sprintf("%.200q (%s)", path, tensors(c.of(v))))
		} else {
			more++
		}
	}
	switch {
	case len(named) == 0:
		return "no dict in it holds tensors"
	case more > 0:
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return "--key selects one of " + strings.Join(named, ", ")
}

// keys yields the dicts that hold tensors, each once, by their keys.
func (c counts) keys(top any) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		seen := make(map[any]bool)
		var visit func(v any, path string, depth int) bool
		visit = func(v any, path string, depth int) bool {
			id := identity(v)
			if id == nil || seen[id] || depth == 0 {
				return true
			}
			seen[id] = true
			if path != "" && c.holds(v) && !yield(path, v) {
				return false
			}
			for _, e := range entriesOf(v) {
				name, ok := e.Key.(string)
				if ok && len(path)+len(name) < 1000 && !visit(e.Value, join(path, name), depth-1) {
					return false
				}
			}
			return true
		}
		visit(top, "", maxDepth)
	}
}

// Keys returns the keys of the dicts that hold tensors, at most limit: what the key of
// Open can be.
func Keys(ctx context.Context, r io.ReaderAt, size int64, limit int) (keys []string, err error) {
	top, _, err := load(ctx, r, size)
	if err != nil {
		return nil, fmt.Errorf("torch file: %w", err)
	}
	for key := range make(counts).keys(top) {
		if len(keys) == limit {
			break
		}
		keys = append(keys, key)
	}
	return keys, nil
}

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
