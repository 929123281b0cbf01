package torchfile

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// choose returns the dict that a key selects, or the top level. It holds tensors,
// or nothing at all.
func choose(top any, key string) (*dict, error) {
	d, ok := top.(*dict)
	where := "at the top level"
	switch {
	case key != "":
		where = fmt.Sprintf("in %.200q itself", key)
		if d, ok = lookUp(top, key); !ok {
			return nil, fmt.Errorf("there is no dict %.200q; %s", key, candidates(top))
		}
	case !ok:
		return nil, fmt.Errorf("it holds %s, not a dict of tensors", describe(top))
	}
	if len(d.entries) > 0 && d.count() == 0 {
		return nil, fmt.Errorf("no tensors %s; %s", where, candidates(top))
	}
	return d, nil
}

// lookUp follows a key of names joined by dots. A name may have dots itself: the
// longest that fits is tried first.
func lookUp(v any, key string) (*dict, bool) {
	d, ok := v.(*dict)
	if !ok {
		return nil, false
	}
	if found, ok := d.get(key); ok {
		if found, ok := found.(*dict); ok {
			return found, true
		}
	}
	for i := strings.LastIndexByte(key, '.'); i >= 0; i = strings.LastIndexByte(key[:i], '.') {
		if inner, ok := d.get(key[:i]); ok {
			if found, ok := lookUp(inner, key[i+1:]); ok {
				return found, true
			}
		}
	}
	return nil, false
}

// count returns how many entries are tensors.
func (d *dict) count() (tensors int) {
	for _, e := range d.entries {
		if _, ok := e.value.(*tensor); ok {
			tensors++
		}
	}
	return tensors
}

// candidates names the dicts that hold tensors, by their keys.
func candidates(top any) string {
	const (
		maxNamed = 10
		maxDepth = 8
	)
	var named []string
	more := 0
	seen := make(map[*dict]bool)
	var visit func(v any, path string, depth int)
	visit = func(v any, path string, depth int) {
		d, ok := v.(*dict)
		if !ok || seen[d] || depth > maxDepth {
			return
		}
		seen[d] = true
		if tensors := d.count(); tensors > 0 && path != "" {
			if len(named) < maxNamed {
				named = append(named, fmt.Sprintf("%.200q (%d tensors)", path, tensors))
			} else {
				more++
			}
		}
		for _, e := range d.entries {
			if name, ok := e.key.(string); ok && len(path)+len(name) < 1000 {
				inner := name
				if path != "" {
					inner = path + "." + name
				}
				visit(e.value, inner, depth+1)
			}
		}
	}
	visit(top, "", 0)
	switch {
	case len(named) == 0:
		return "no dict in it holds tensors"
	case more > 0:
		named = append(named, fmt.Sprintf("%d more", more))
	}
	return "keys of dicts with tensors: " + strings.Join(named, ", ")
}

// metadataText returns a value beside tensors as the text of a metadata entry, if it
// is a number, a string, a bool or None.
func metadataText(v any) (text string, ok bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return strconv.FormatFloat(v, 'g', -1, 64), true
		}
		b, err := json.Marshal(v)
		return string(b), err == nil
	}
	return "", false
}
