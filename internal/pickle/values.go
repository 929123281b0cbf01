package pickle

import (
	"fmt"
	"slices"
)

// The values of a pickle: nil, bool, int64, float64, string, these, and whatever an
// Unpickler's Call and Persistent return.
type (
	// A Long is an integer beyond 64 bits, in little-endian bytes.
	Long string

	Bytes []byte
	Tuple []any
	List  struct{ Items []any }

	// A Global is a function or class by its name: data that calls nothing.
	Global struct{ Module, Name string }

	// An Object is the result of a call of an unknown Global, or of another Object. It
	// stands for anything: a set, a function, an array. Nothing was called to make it.
	Object struct {
		Class Global // whose call it is, directly or through other calls
		Args  Tuple
		State any   // what it was built with last; nil if it was not
		Why   error // why a known Global did not take the arguments, if it is one
	}
)

// Set returns the items of a set, which Python makes of a list, in any order, and whether v is
// one.
func Set(v any) (items *List, ok bool) {
	o, ok := v.(*Object)
	if !ok || o.Class.Name != "set" || o.Class.Module != "builtins" && o.Class.Module != "__builtin__" || len(o.Args) != 1 {
		return nil, false
	}
	items, ok = o.Args[0].(*List)
	return items, ok
}

func (g Global) String() string { return g.Module + "." + g.Name }

// A Dict is a dictionary in the order of the pickle. Its string keys are unique.
type Dict struct {
	Entries []Entry
	byName  map[string]int // of the string keys, once there are many
}

// An Entry is a key and its value in a Dict.
type Entry struct{ Key, Value any }

// Get returns the value of a string key.
func (d *Dict) Get(name string) (value any, ok bool) {
	i, ok := d.byName[name]
	if d.byName == nil {
		i = slices.IndexFunc(d.Entries, func(e Entry) bool { return e.Key == any(name) })
		ok = i >= 0
	}
	if !ok {
		return nil, false
	}
	return d.Entries[i].Value, true
}

// Set adds an entry. Python would take the second of two with one key; no dict has
// such.
func (d *Dict) Set(key, value any) error {
	const many = 8
	switch key := key.(type) {
	case string:
		if _, dup := d.Get(key); dup {
			return fmt.Errorf("duplicate key %.200q", key)
		}
	case *List, *Dict:
		return fmt.Errorf("a dict key that is %s", Describe(key))
	}
	i := len(d.Entries)
	d.Entries = append(d.Entries, Entry{key, value})
	if d.byName == nil && len(d.Entries) > many {
		d.byName, i = make(map[string]int), 0
	}
	for ; d.byName != nil && i < len(d.Entries); i++ {
		if name, ok := d.Entries[i].Key.(string); ok {
			d.byName[name] = i
		}
	}
	return nil
}

// Ints returns a tuple of at most so many integers, such as a shape.
func Ints[T int | int64](v any, most int) ([]T, error) {
	t, ok := v.(Tuple)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s in place of a tuple of integers", Describe(v))
	case len(t) > most:
		return nil, fmt.Errorf("%d dimensions, at most %d are read", len(t), most)
	}
	out := make([]T, len(t))
	for i, item := range t {
		n, ok := item.(int64)
		if !ok {
			return nil, fmt.Errorf("%s in place of an integer", Describe(item))
		}
		if out[i] = T(n); int64(out[i]) != n {
			return nil, fmt.Errorf("%d exceeds an int", n)
		}
	}
	return out, nil
}

// Describe says what a value is, for an error.
func Describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64, Long:
		return "an int"
	case float64:
		return "a float"
	case string:
		return "a string"
	case Bytes:
		return "bytes"
	case Tuple:
		return fmt.Sprintf("a tuple of %d", len(v))
	case *List:
		return fmt.Sprintf("a list of %d", len(v.Items))
	case *Dict:
		return fmt.Sprintf("a dict with %d entries", len(v.Entries))
	case Global:
		return fmt.Sprintf("the class or function %.200q", v.String())
	case *Object:
		return fmt.Sprintf("an object of %.200q", v.Class.String())
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprintf("a %T", v)
}
