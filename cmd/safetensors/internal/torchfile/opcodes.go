package torchfile

import (
	"errors"
	"fmt"
	"slices"
)

// The opcodes that torch.save writes, by their names in Python's pickletools. The
// others, of protocol 0 and 1 and for objects with code, are refused.
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
	opProto           = 0x80
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
	opStackGlobal     = 0x93
	opMemoize         = 0x94
	opFrame           = 0x95
)

// step executes one opcode.
func (u *unpickler) step(op byte) error {
	switch op {
	case opProto:
		if v, err := u.byte(); err != nil || v < 2 || v > 5 {
			return cmpErr(err, "protocol %d, known are 2 to 5", v)
		}
		return nil
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
		return u.push(&list{})
	case opEmptyDict:
		return u.push(&dict{})
	case opAppend, opAppends, opSetItem, opSetItems:
		return u.extend(op)
	case opBinPut, opLongBinPut, opMemoize, opBinGet, opLongBinGet:
		return u.recall(op)
	case opGlobal, opStackGlobal, opReduce, opBuild, opBinPersID:
		return u.object(op)
	case opEmptyTuple, opTuple, opTuple1, opTuple2, opTuple3:
		return u.tuple(op)
	}
	return u.constant(op)
}

// cmpErr returns err, or else an error of that text.
func cmpErr(err error, format string, args ...any) error {
	if err != nil {
		return err
	}
	return fmt.Errorf(format, args...)
}

// constant pushes a value that the opcode contains.
func (u *unpickler) constant(op byte) (err error) {
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
			v = floatOf(b)
		}
	case opShortBinString, opShortBinUnicode:
		v, err = u.text(1)
	case opBinString, opBinUnicode:
		v, err = u.text(4)
	case opBinUnicode8:
		v, err = u.text(8)
	case opShortBinBytes:
		b, err = u.counted(1)
		v = blob(b)
	case opBinBytes:
		b, err = u.counted(4)
		v = blob(b)
	case opBinBytes8:
		b, err = u.counted(8)
		v = blob(b)
	default:
		return fmt.Errorf("opcode %#02x, which torch.save does not write for tensors", op)
	}
	if err != nil {
		return err
	}
	return u.push(v)
}

func (u *unpickler) tuple(op byte) error {
	var items []any
	var err error
	switch op {
	case opTuple:
		items, err = u.popMark()
	case opEmptyTuple:
	default:
		items, err = u.popN(int(op) - opTuple1 + 1)
	}
	if err != nil {
		return err
	}
	return u.push(tuple(slices.Clone(items)))
}

// extend adds to the list or dict under the items.
func (u *unpickler) extend(op byte) error {
	var items []any
	var err error
	switch op {
	case opAppend:
		items, err = u.popN(1)
	case opSetItem:
		items, err = u.popN(2)
	default:
		items, err = u.popMark()
	}
	if err != nil {
		return err
	}
	to, err := u.top()
	if err != nil {
		return err
	}
	if op == opAppend || op == opAppends {
		l, ok := to.(*list)
		if !ok {
			return fmt.Errorf("appending to %s", describe(to))
		}
		l.items = append(l.items, items...)
		return nil
	}
	d, ok := to.(*dict)
	if !ok || len(items)%2 != 0 {
		return fmt.Errorf("setting %d keys and values in %s", len(items), describe(to))
	}
	for i := 0; i < len(items); i += 2 {
		if err := d.set(items[i], items[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// recall stores in the memo and pushes from it.
func (u *unpickler) recall(op byte) error {
	id, err := uint64(len(u.memo)), error(nil)
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
		v, ok := u.memo[uint32(id)]
		if !ok {
			return fmt.Errorf("nothing was stored as %d", id)
		}
		return u.push(v)
	}
	v, err := u.top()
	if err == nil {
		u.memo[uint32(id)] = v
	}
	return err
}

// object makes globals, and hands them with their arguments to the caller.
func (u *unpickler) object(op byte) error {
	switch op {
	case opGlobal:
		module, err := u.line()
		if err != nil {
			return err
		}
		name, err := u.line()
		if err != nil {
			return err
		}
		return u.pushGlobal(global{module, name})
	case opBinPersID:
		id, err := u.pop()
		if err != nil {
			return err
		}
		v, err := u.persistent(id)
		if err != nil {
			return err
		}
		return u.push(v)
	}
	items, err := u.popN(2)
	if err != nil {
		return err
	}
	switch op {
	case opStackGlobal:
		module, ok1 := items[0].(string)
		name, ok2 := items[1].(string)
		if !ok1 || !ok2 {
			return errors.New("the name of a global is not a string")
		}
		return u.pushGlobal(global{module, name})
	case opReduce:
		f, ok1 := items[0].(global)
		args, ok2 := items[1].(tuple)
		if !ok1 || !ok2 {
			return fmt.Errorf("calling %s with %s", describe(items[0]), describe(items[1]))
		}
		v, err := u.reduce(f, args)
		if err != nil {
			return err
		}
		return u.push(v)
	default: // opBuild: attributes of a dict, such as _metadata, are not for us
		if _, ok := items[0].(*dict); !ok {
			return fmt.Errorf("setting attributes of %s", describe(items[0]))
		}
		return u.push(items[0])
	}
}

func (u *unpickler) pushGlobal(g global) error {
	if err := u.class(g); err != nil {
		return err
	}
	return u.push(g)
}
