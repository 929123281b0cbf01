package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unicode/utf8"
)

// Start is the first byte of each pickle of protocol 2 and above, an opcode.
const Start = 0x80

const opStop = '.'

// opcodes maps the opcodes that an Unpickler executes, except STOP, to their funcs. The comments
// are their names in Python's pickletools. All other opcodes are refused: those of protocol 0, and
// those for objects that a program keeps outside of the pickle.
var opcodes = [256]func(u *Unpickler) error{
	Start: (*Unpickler).protocol,                                 // PROTO
	0x95:  func(u *Unpickler) error { return skip(u.number(8)) }, // FRAME: number of bytes to read ahead, ignored
	'(':   (*Unpickler).mark,                                     // MARK
	'0':   func(u *Unpickler) error { return skip(u.pop()) },     // POP
	'1':   func(u *Unpickler) error { return skip(u.popMark()) }, // POP_MARK

	'K': number(1, func(n uint64) any { return int64(n) }),                                     // BININT1
	'M': number(2, func(n uint64) any { return int64(n) }),                                     // BININT2
	'J': number(4, func(n uint64) any { return int64(int32(n)) }),                              // BININT
	'G': number(8, func(n uint64) any { return math.Float64frombits(bits.ReverseBytes64(n)) }), // BINFLOAT

	0x8a: counted(1, integer), // LONG1
	0x8b: counted(4, integer), // LONG4
	'U':  counted(1, text),    // SHORT_BINSTRING, a str of Python 2
	'T':  counted(4, text),    // BINSTRING
	0x8c: counted(1, text),    // SHORT_BINUNICODE
	'X':  counted(4, text),    // BINUNICODE
	0x8d: counted(8, text),    // BINUNICODE8
	'C':  counted(1, raw),     // SHORT_BINBYTES
	'B':  counted(4, raw),     // BINBYTES
	0x8e: counted(8, raw),     // BINBYTES8
	0x96: counted(8, raw),     // BYTEARRAY8

	'N':  constant(nil),                                       // NONE
	0x88: constant(true),                                      // NEWTRUE
	0x89: constant(false),                                     // NEWFALSE
	')':  constant(Tuple(nil)),                                // EMPTY_TUPLE
	0x85: tuple(1),                                            // TUPLE1
	0x86: tuple(2),                                            // TUPLE2
	0x87: tuple(3),                                            // TUPLE3
	't':  tuple(toMark),                                       // TUPLE
	']':  func(u *Unpickler) error { return u.push(&List{}) }, // EMPTY_LIST
	'}':  func(u *Unpickler) error { return u.push(&Dict{}) }, // EMPTY_DICT
	0x8f: (*Unpickler).emptySet,                               // EMPTY_SET
	0x91: (*Unpickler).frozenSet,                              // FROZENSET
	'a':  extend(1, appendTo),                                 // APPEND
	'e':  extend(toMark, appendTo),                            // APPENDS
	's':  extend(2, setIn),                                    // SETITEM
	'u':  extend(toMark, setIn),                               // SETITEMS
	0x90: extend(toMark, addTo),                               // ADDITEMS

	'q':  func(u *Unpickler) error { return u.put(u.number(1)) },               // BINPUT
	'r':  func(u *Unpickler) error { return u.put(u.number(4)) },               // LONG_BINPUT
	0x94: func(u *Unpickler) error { return u.put(uint64(u.memo.len()), nil) }, // MEMOIZE
	'h':  func(u *Unpickler) error { return u.get(u.number(1)) },               // BINGET
	'j':  func(u *Unpickler) error { return u.get(u.number(4)) },               // LONG_BINGET

	'c':  func(u *Unpickler) error { return u.pushValue(u.lines()) }, // GLOBAL
	0x93: (*Unpickler).stackGlobal,                                   // STACK_GLOBAL
	'R':  call(2),                                                    // REDUCE
	0x81: call(2),                                                    // NEWOBJ
	0x92: call(3),                                                    // NEWOBJ_EX: its third item, the arguments by name, is ignored
	'o':  (*Unpickler).object,                                        // OBJ
	'b':  (*Unpickler).build,                                         // BUILD
	'Q':  (*Unpickler).persist,                                       // BINPERSID
}

// skip drops a value that an opcode has read or popped, and returns the error.
func skip[T any](_ T, err error) error { return err }

func (u *Unpickler) mark() error {
	u.marks = append(u.marks, len(u.stack))
	return nil
}

func (u *Unpickler) protocol() error {
	v, err := u.byte()
	if err == nil && (v < 2 || v > 5) {
		err = fmt.Errorf("protocol %d; only 2 to 5 are read", v)
	}
	return err
}

// constant returns the func of an opcode that pushes v.
func constant(v any) func(*Unpickler) error {
	return func(u *Unpickler) error { return u.push(v) }
}

// number returns the func of an opcode that reads an unsigned integer n of this size in bytes, and
// pushes value(n).
func number(bytes int, value func(n uint64) any) func(*Unpickler) error {
	return func(u *Unpickler) error {
		n, err := u.number(bytes)
		return u.pushValue(value(n), err)
	}
}

// counted returns the func of an opcode that reads a length, which is an integer of this size in
// bytes, then as many bytes, and pushes what the func value returns for these bytes.
func counted(bytes int, value func(b []byte) (any, error)) func(*Unpickler) error {
	return func(u *Unpickler) error {
		var b []byte
		n, err := u.number(bytes)
		if err == nil {
			b, err = u.take(n)
		}
		if err != nil {
			return err
		}
		return u.pushValue(value(b))
	}
}

func raw(b []byte) (any, error) { return Bytes(b), nil }

func text(b []byte) (any, error) {
	if !utf8.Valid(b) {
		return nil, fmt.Errorf("the string %.200q is not valid UTF-8", b)
	}
	return string(b), nil
}

// integer returns the little-endian two's complement integer in b as an int64, or as a Long if it
// has more than 8 bytes.
func integer(b []byte) (any, error) {
	if len(b) > 8 {
		return Long(b), nil
	}
	var word [8]byte
	n := copy(word[:], b)
	shift := 8 * (8 - n)
	return int64(binary.LittleEndian.Uint64(word[:])) << shift >> shift, nil
}

// toMark, as a number of items, stands for all items after the last mark.
const toMark = -1

// items pops n items, and counts them because the opcode copies them. They are valid until the next
// push.
func (u *Unpickler) items(n int) (items []any, err error) {
	if n == toMark {
		items, err = u.popMark()
	} else {
		items, err = u.popN(n)
	}
	if err == nil {
		err = u.Charge(len(items))
	}
	return items, err
}

// tuple returns the func of an opcode that pops n items and pushes a Tuple of them.
func tuple(n int) func(*Unpickler) error {
	return func(u *Unpickler) error {
		items, err := u.items(n)
		return u.pushValue(Tuple(slices.Clone(items)), err)
	}
}

// emptySet pushes the Object that a call of set with an empty list would push.
func (u *Unpickler) emptySet() error {
	return u.pushObject(&Object{Class: Global{"builtins", "set"}, Args: Tuple{&List{}}})
}

// frozenSet pops the items after the mark, and pushes an Object that does not hold them.
func (u *Unpickler) frozenSet() error {
	if _, err := u.popMark(); err != nil {
		return err
	}
	return u.pushObject(&Object{Class: Global{"builtins", "frozenset"}})
}

// extend returns the func of an opcode that pops n items, and adds them to the value below, which
// stays on the stack.
func extend(n int, add func(u *Unpickler, to any, items []any) error) func(*Unpickler) error {
	return func(u *Unpickler) error {
		items, err := u.items(n)
		if err != nil {
			return err
		}
		to, err := u.top()
		if err != nil {
			return err
		}
		return add(u, to, items)
	}
}

// appendTo appends to a list, or to an Object, which may be of a subclass of list.
func appendTo(_ *Unpickler, to any, items []any) error {
	if o, ok := to.(*Object); ok {
		if o.List == nil {
			o.List = &List{}
		}
		to = o.List
	}
	l, ok := to.(*List)
	if !ok {
		return fmt.Errorf("appending to %s", Describe(to))
	}
	l.Items = append(l.Items, items...)
	return nil
}

// setIn sets entries of a dict, or of an Object, which may be of a subclass of dict.
func setIn(u *Unpickler, to any, items []any) error {
	if o, ok := to.(*Object); ok {
		if o.Dict == nil {
			o.Dict = &Dict{}
		}
		to = o.Dict
	}
	d, ok := to.(*Dict)
	if !ok || len(items)%2 != 0 {
		return fmt.Errorf("setting %d keys and values in %s", len(items), Describe(to))
	}
	for i := 0; i < len(items); i += 2 {
		if err := u.set(d, items[i], items[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// set adds an entry to a dict. It counts the work of comparing keys: the bytes of a string key, or
// all entries for a number that may equal a number of another type.
func (u *Unpickler) set(d *Dict, key, value any) error {
	compared := 0
	switch name, ok := key.(string); {
	case ok:
		compared = len(name) / elementSize
	case d.hasOdd() || isOdd(key):
		compared = len(d.Entries)
	}
	if err := u.Charge(compared); err != nil {
		return err
	}
	return d.Set(key, value)
}

// addTo adds items to a set. It drops items that are added to an Object of another class.
func addTo(u *Unpickler, to any, items []any) (err error) {
	if _, ok := to.(*Object); !ok {
		return fmt.Errorf("adding to %s", Describe(to))
	}
	if l, ok := Set(to); ok {
		if cap(l.Items)-len(l.Items) < len(items) { // append will copy all items of the list
			err = u.Charge(len(l.Items))
		}
		l.Items = append(l.Items, items...)
	}
	return err
}

// put stores the top of the stack in the memo, under id. The value stays on the stack.
func (u *Unpickler) put(id uint64, err error) error {
	if err != nil {
		return err
	}
	v, err := u.top()
	if err == nil {
		u.memo.put(uint32(id), v)
	}
	return err
}

// get pushes the value that the memo holds under id.
func (u *Unpickler) get(id uint64, err error) error {
	if err != nil {
		return err
	}
	v, ok := u.memo.get(uint32(id))
	if !ok {
		return fmt.Errorf("nothing was stored as %d", id)
	}
	return u.push(v)
}
