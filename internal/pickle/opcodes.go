package pickle

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Start is the first byte of each pickle of protocol 2 and above.
const Start = 0x80

// The opcodes that are read, by their names in Python's pickletools. The others, of
// protocol 0 and for what a program keeps outside of the pickle, are refused.
const (
	opMark            = '('
	opStop            = '.'
	opBinFloat        = 'G'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opNone            = 'N'
	opBinPersID       = 'Q'
	opReduce          = 'R'
	opBinString       = 'T' // a str of Python 2
	opShortBinString  = 'U'
	opBinUnicode      = 'X'
	opAppend          = 'a'
	opBuild           = 'b'
	opInst            = 'i'
	opObj             = 'o'
	opGlobal          = 'c'
	opAppends         = 'e'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opSetItem         = 's'
	opTuple           = 't'
	opSetItems        = 'u'
	opEmptyTuple      = ')'
	opEmptyList       = ']'
	opEmptyDict       = '}'
	opPop             = '0'
	opPopMark         = '1'
	opProto           = Start
	opNewObj          = 0x81
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opBinBytes        = 'B'
	opShortBinBytes   = 'C'
	opShortBinUnicode = 0x8c
	opBinUnicode8     = 0x8d
	opBinBytes8       = 0x8e
	opEmptySet        = 0x8f
	opAddItems        = 0x90
	opFrozenSet       = 0x91
	opNewObjEx        = 0x92
	opStackGlobal     = 0x93
	opMemoize         = 0x94
	opFrame           = 0x95
	opByteArray8      = 0x96
)

// step executes one opcode.
func (u *Unpickler) step(op byte) error {
	switch op {
	case opProto:
		v, err := u.byte()
		if err == nil && (v < 2 || v > 5) {
			err = fmt.Errorf("protocol %d, known are 2 to 5", v)
		}
		return err
	case opFrame: // how much to read at once
		_, err := u.number(8)
		return err
	case opMark:
		u.marks = append(u.marks, len(u.stack))
		return nil
	case opPop:
		_, err := u.pop()
		return err
	case opPopMark:
		_, err := u.popMark()
		return err
	case opEmptyList:
		return u.push(&List{})
	case opEmptyDict:
		return u.push(&Dict{})
	case opEmptySet:
		return u.pushObject(&Object{Class: Global{"builtins", "set"}, Args: Tuple{&List{}}})
	case opFrozenSet:
		if _, err := u.popMark(); err != nil {
			return err
		}
		return u.pushObject(&Object{Class: Global{"builtins", "frozenset"}})
	case opAppend, opAppends, opSetItem, opSetItems, opAddItems:
		return u.extend(op)
	case opBinPut, opLongBinPut, opMemoize, opBinGet, opLongBinGet:
		return u.recall(op)
	case opGlobal, opStackGlobal:
		return u.global(op)
	case opReduce, opNewObj, opNewObjEx, opInst, opObj:
		return u.object(op)
	case opBuild:
		return u.build()
	case opBinPersID:
		return u.persist()
	case opEmptyTuple, opTuple, opTuple1, opTuple2, opTuple3:
		return u.tuple(op)
	}
	return u.constant(op)
}

// constant pushes a value that the opcode contains.
func (u *Unpickler) constant(op byte) (err error) {
	var v any
	var b []byte
	switch op {
	case opNone:
	case opNewTrue, opNewFalse:
		v = op == opNewTrue
	case opBinInt1:
		var c byte
		c, err = u.byte()
		v = int64(c)
	case opBinInt2:
		b, err = u.take(2)
		v = integer(append(b, 0))
	case opBinInt:
		b, err = u.take(4)
		v = integer(b)
	case opLong1:
		b, err = u.counted(1)
		v = integer(b)
	case opLong4:
		b, err = u.counted(4)
		v = integer(b)
	case opBinFloat:
		if b, err = u.take(8); err == nil {
			v = math.Float64frombits(binary.BigEndian.Uint64(b))
		}
	case opShortBinString, opShortBinUnicode:
		v, err = u.text(1)
	case opBinString, opBinUnicode:
		v, err = u.text(4)
	case opBinUnicode8:
		v, err = u.text(8)
	case opShortBinBytes:
		b, err = u.counted(1)
		v = Bytes(b)
	case opBinBytes:
		b, err = u.counted(4)
		v = Bytes(b)
	case opBinBytes8, opByteArray8:
		b, err = u.counted(8)
		v = Bytes(b)
	default:
		return fmt.Errorf("unknown opcode %#02x", op)
	}
	if err != nil {
		return err
	}
	return u.push(v)
}

func (u *Unpickler) tuple(op byte) error {
	items, err := u.items(op)
	return u.pushAfter(err, Tuple(slices.Clone(items)))
}

// items pops those that an opcode copies, and counts them.
func (u *Unpickler) items(op byte) (items []any, err error) {
	switch op {
	case opEmptyTuple:
	case opTuple1, opAppend:
		items, err = u.popN(1)
	case opTuple2, opSetItem:
		items, err = u.popN(2)
	case opTuple3:
		items, err = u.popN(3)
	default:
		items, err = u.popMark()
	}
	if err == nil {
		err = u.Charge(len(items))
	}
	return items, err
}

// extend adds to the list or dict under the items. Those of an Object are dropped.
func (u *Unpickler) extend(op byte) error {
	items, err := u.items(op)
	if err != nil {
		return err
	}
	to, err := u.top()
	if err != nil {
		return err
	}
	if o, ok := to.(*Object); ok {
		if l, ok := o.setItems(); ok && op == opAddItems {
			if cap(l.Items)-len(l.Items) < len(items) { // append copies all of them
				err = u.Charge(len(l.Items))
			}
			l.Items = append(l.Items, items...)
		}
		return err
	}
	switch op {
	case opAddItems:
		return fmt.Errorf("adding to %s", Describe(to))
	case opAppend, opAppends:
		l, ok := to.(*List)
		if !ok {
			return fmt.Errorf("appending to %s", Describe(to))
		}
		l.Items = append(l.Items, items...)
		return nil
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

// set adds an entry to a dict. It counts the bytes of a string key, because those of two
// keys are compared.
func (u *Unpickler) set(d *Dict, key, value any) error {
	if name, ok := key.(string); ok {
		if err := u.Charge(len(name) / elementSize); err != nil {
			return err
		}
	}
	return d.Set(key, value)
}

// recall stores in the memo and pushes from it.
func (u *Unpickler) recall(op byte) error {
	id, err := uint64(u.memo.len()), error(nil)
	switch op {
	case opBinPut, opBinGet:
		var c byte
		c, err = u.byte()
		id = uint64(c)
	case opLongBinPut, opLongBinGet:
		id, err = u.number(4)
	}
	if err != nil {
		return err
	}
	if op == opBinGet || op == opLongBinGet {
		v, ok := u.memo.get(uint32(id))
		if !ok {
			return fmt.Errorf("nothing was stored as %d", id)
		}
		return u.push(v)
	}
	v, err := u.top()
	if err == nil {
		u.memo.put(uint32(id), v)
	}
	return err
}
