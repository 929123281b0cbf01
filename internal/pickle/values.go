package pickle

import (
	"fmt"
	"slices"
)

// The values of a pickle are nil, bool, int64, float64, string, the types below, and any value that
// an Unpickler's Call and Persistent return.
type (
	// A Long is an integer of more than 64 bits, in little-endian bytes.
	Long string

	Bytes []byte
	Tuple []any
	List  struct{ Items []any }

	// A Global is a function or class of Python, referred to by its name. It is never called.
	Global struct{ Module, Name string }

	// An Object describes the result of a call of an unknown Global, or of another Object. It may
	// stand for any value of Python: a set, a function, an array. Nothing was called to make it.
	Object struct {
		Class Global // the Global that was called, directly or through other calls
		Args  Tuple
		State any   // the state that BUILD has set; nil if there is none
		Dict  *Dict // items that were set on the object, as on a subclass of dict; nil if there are none
		List  *List // items that were appended to the object, as to a subclass of list; nil if there are none
		Why   error // if Class is known, the reason why it did not accept Args; otherwise nil
	}
)

// Set reports whether v is a set, and returns its items. Pickles make a set from a list, whose
// order has no meaning.
func Set(v any) (items *List, ok bool) {
	o, ok := v.(*Object)
	if !ok || o.Class.Name != "set" || o.Class.Module != "builtins" && o.Class.Module != "__builtin__" || len(o.Args) != 1 {
		return nil, false
	}
	items, ok = o.Args[0].(*List)
	return items, ok
}

func (g Global) String() string { return g.Module + "." + g.Name }

// A Dict is a dictionary in the order of the pickle. Its string keys and its numeric keys are
// unique.
type Dict struct {
	Entries []Entry
	keys    *keys // nil while there are few entries, and their numeric keys are int64
}

// An Entry is a key and its value in a Dict.
type Entry struct{ Key, Value any }

// A keys value describes the keys of a Dict. It is a struct of its own because a hostile pickle may
// have millions of empty dicts, which do without it.
type keys struct {
	byName map[string]int // indices of the string keys in Entries; nil while there are few entries
	odd    bool           // whether some key is a number, but not an int64
}

// Get returns the value of a string key.
func (d *Dict) Get(name string) (value any, ok bool) {
	var i int
	if d.keys != nil && d.keys.byName != nil {
		i, ok = d.keys.byName[name]
	} else {
		i = slices.IndexFunc(d.Entries, func(e Entry) bool { return e.Key == any(name) })
		ok = i >= 0
	}
	if !ok {
		return nil, false
	}
	return d.Entries[i].Value, true
}

// Set adds an entry. A duplicate key is an error: Python would let the second entry replace the
// first, so that no pickle of a dict has two.
func (d *Dict) Set(key, value any) error {
	switch key := key.(type) {
	case string:
		if _, dup := d.Get(key); dup {
			return fmt.Errorf("duplicate key %.200q", key)
		}
	case *List, *Dict:
		return fmt.Errorf("a dict key that is %s", Describe(key))
	default:
		if number, ok := numberOf(key); ok && d.hasOdd() || isOdd(key) {
			if slices.ContainsFunc(d.Entries, func(e Entry) bool { other, ok := numberOf(e.Key); return ok && other == number }) {
				return fmt.Errorf("duplicate key %v, %s", key, Describe(key))
			}
			d.describeKeys().odd = true
		}
	}
	d.Entries = append(d.Entries, Entry{key, value})
	d.indexNames()
	return nil
}

// indexNames adds the last entry to the index of string keys. Once there are many entries, it makes
// the index.
func (d *Dict) indexNames() {
	const many = 8
	if len(d.Entries) <= many {
		return
	}
	k, i := d.describeKeys(), len(d.Entries)-1
	if k.byName == nil {
		k.byName, i = make(map[string]int), 0
	}
	for ; i < len(d.Entries); i++ {
		if name, ok := d.Entries[i].Key.(string); ok {
			k.byName[name] = i
		}
	}
}

func (d *Dict) hasOdd() bool { return d.keys != nil && d.keys.odd }

// describeKeys returns d.keys, and makes them if they are nil.
func (d *Dict) describeKeys() *keys {
	if d.keys == nil {
		d.keys = new(keys)
	}
	return d.keys
}

// numberOf returns the number as which Python compares a key with others: True, 1 and 1.0 are equal
// keys. ok is false for a key that is not a number.
func numberOf(key any) (n float64, ok bool) {
	switch key := key.(type) {
	case bool:
		if key {
			n = 1
		}
		return n, true
	case int64:
		return float64(key), true
	case float64:
		return key, true
	}
	return 0, false
}

// isOdd reports whether a key is a number, but not an int64, so that it may equal a key of another
// type.
func isOdd(key any) bool {
	_, isNumber := numberOf(key)
	_, isInt := key.(int64)
	return isNumber && !isInt
}

// Ints returns the integers of a tuple, such as a shape. It is an error if there are more integers
// than the limit, most.
func Ints[T int | int64](v any, most int) ([]T, error) {
	t, ok := v.(Tuple)
	switch {
	case !ok:
		return nil, fmt.Errorf("%s instead of a tuple of integers", Describe(v))
	case len(t) > most:
		return nil, fmt.Errorf("%d dimensions, at most %d are read", len(t), most)
	}
	out := make([]T, len(t))
	for i, item := range t {
		n, ok := item.(int64)
		if !ok {
			return nil, fmt.Errorf("%s instead of an integer", Describe(item))
		}
		if out[i] = T(n); int64(out[i]) != n {
			return nil, fmt.Errorf("%d exceeds an int", n)
		}
	}
	return out, nil
}

// Describe returns a description of a value, for an error.
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
		if len(v.Entries) == 1 {
			return "a dict with 1 entry"
		}
		return fmt.Sprintf("a dict with %d entries", len(v.Entries))
	case Global:
		return fmt.Sprintf("the class or function %.200q", v.String())
	case *Object:
		switch name := v.Class.String(); name {
		case "numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct":
			return "a NumPy array"
		case "numpy._core.multiarray.scalar", "numpy.core.multiarray.scalar":
			return "a NumPy number"
		case "_codecs.encode": // how Python pickles bytes in protocol 2
			return "bytes"
		default:
			return fmt.Sprintf("an object of %.200q", name)
		}
	case fmt.Stringer:
		return v.String()
	}
	return fmt.Sprintf("a %T", v)
}
