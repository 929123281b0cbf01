package torchfile

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"unicode/utf8"
)

// The values of a pickle: nil, bool, int64, float64, string, and these. What an
// interpreter makes of them is left to the caller.
type (
	long  string // an integer beyond 64 bits, in little-endian bytes
	blob  []byte
	tuple []any
	list  struct{ items []any }

	// A global is a function or class by its name: data that calls nothing.
	global struct{ module, name string }
)

func (g global) String() string { return g.module + "." + g.name }

// A dict is a dictionary in the order of the pickle. Its string keys are unique.
type dict struct {
	entries []entry
	byName  map[string]int // of the string keys, once there are many
}

type entry struct{ key, value any }

// get returns the value of a string key.
func (d *dict) get(name string) (value any, ok bool) {
	if d.byName != nil {
		i, ok := d.byName[name]
		if !ok {
			return nil, false
		}
		return d.entries[i].value, true
	}
	for _, e := range d.entries {
		if e.key == name {
			return e.value, true
		}
	}
	return nil, false
}

// set adds an entry. Python would take the second of two with one key; no dict has
// such.
func (d *dict) set(key, value any) error {
	const many = 8
	switch key := key.(type) {
	case string:
		if _, dup := d.get(key); dup {
			return fmt.Errorf("duplicate key %.200q", key)
		}
	case nil, bool, int64, float64, long, tuple: // what a dict may have
	default:
		return fmt.Errorf("a dict key that is %s", describe(key))
	}
	d.entries = append(d.entries, entry{key, value})
	if d.byName != nil || len(d.entries) > many {
		d.index()
	}
	return nil
}

// index adds the last entry to byName, or all of them.
func (d *dict) index() {
	first := len(d.entries) - 1
	if d.byName == nil {
		d.byName, first = make(map[string]int), 0
	}
	for i, e := range d.entries[first:] {
		if name, ok := e.key.(string); ok {
			d.byName[name] = first + i
		}
	}
}

const (
	// maxPickle is the largest pickle in bytes, the limit that safetensors has for
	// headers.
	maxPickle = 100_000_000

	// maxSteps is how many opcodes a file may have. One takes at most some hundred
	// bytes of memory, and a tensor some 35 opcodes.
	maxSteps = 1 << 22
)

// An unpickler interprets pickles of protocol 2 to 5 as torch.save writes them. It
// has no stack but its own and calls nothing but reduce and persistent.
//
// A library was rejected: github.com/nlpodyssey/gopickle 0.2.0 panics for pickles
// of a few bytes, allocates what lengths claim, and lets three classes pass that
// its caller cannot refuse.
type unpickler struct {
	r    *bufio.Reader
	left int64 // bytes that there are, and may be used
	pos  int64 // bytes used

	steps int // opcodes executed, in all pickles
	stack []any
	marks []int // heights of the stack
	memo  map[uint32]any

	class      func(global) error
	reduce     func(global, tuple) (any, error)
	persistent func(id any) (any, error)
}

// newUnpickler returns an unpickler of the size bytes of r.
func newUnpickler(r io.Reader, size int64) *unpickler {
	return &unpickler{r: bufio.NewReader(r), left: min(size, maxPickle)}
}

// load reads one pickle. A file may have several, one after another.
func (u *unpickler) load() (any, error) {
	u.stack, u.marks, u.memo = nil, nil, make(map[uint32]any)
	defer func() { u.stack, u.marks, u.memo = nil, nil, nil }()
	for {
		start := u.pos
		op, err := u.byte()
		if err == nil {
			if u.steps++; u.steps > maxSteps {
				return nil, fmt.Errorf("the pickle has more than %d opcodes", maxSteps)
			}
			if op == opStop {
				var value any
				if value, err = u.pop(); err == nil {
					return value, nil
				}
			}
		}
		if err == nil {
			err = u.step(op)
		}
		if err != nil {
			return nil, fmt.Errorf("the pickle, at byte %d: %w", start, err)
		}
	}
}

func (u *unpickler) byte() (byte, error) {
	if u.left == 0 {
		return 0, fmt.Errorf("no byte is left: %w", io.ErrUnexpectedEOF)
	}
	b, err := u.r.ReadByte()
	if err != nil {
		return 0, eofIsUnexpected(err)
	}
	u.left--
	u.pos++
	return b, nil
}

// eofIsUnexpected: the file ends where its size says that there is more.
func eofIsUnexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// take returns the next n bytes.
func (u *unpickler) take(n uint64) ([]byte, error) {
	if n > uint64(u.left) {
		return nil, fmt.Errorf("%d bytes where at most %d are left: %w", n, u.left, io.ErrUnexpectedEOF)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(u.r, b); err != nil {
		return nil, eofIsUnexpected(err)
	}
	u.left -= int64(n)
	u.pos += int64(n)
	return b, nil
}

// number returns the next little-endian unsigned integer, of the given size in bytes.
func (u *unpickler) number(bytes uint64) (uint64, error) {
	b, err := u.take(bytes)
	var word [8]byte
	copy(word[:], b)
	return binary.LittleEndian.Uint64(word[:]), err
}

// counted returns the bytes that follow their count, an integer of the given size.
func (u *unpickler) counted(bytes uint64) ([]byte, error) {
	n, err := u.number(bytes)
	if err != nil {
		return nil, err
	}
	return u.take(n)
}

// text is counted, and valid UTF-8.
func (u *unpickler) text(bytes uint64) (string, error) {
	b, err := u.counted(bytes)
	if err == nil && !utf8.Valid(b) {
		err = fmt.Errorf("the string %.200q is not valid UTF-8", b)
	}
	return string(b), err
}

// line returns the bytes up to the next newline.
func (u *unpickler) line() (string, error) {
	const limit = 1000 // no allowed name is as long
	var b []byte
	for len(b) < limit {
		c, err := u.byte()
		if err != nil {
			return "", err
		}
		if c == '\n' {
			return string(b), nil
		}
		b = append(b, c)
	}
	return "", fmt.Errorf("a name of more than %d bytes: %.200q", limit, b)
}

func (u *unpickler) push(v any) error {
	u.stack = append(u.stack, v)
	return nil
}

// base is the height below which the last mark protects the stack.
func (u *unpickler) base() int {
	if len(u.marks) == 0 {
		return 0
	}
	return u.marks[len(u.marks)-1]
}

func (u *unpickler) pop() (any, error) {
	items, err := u.popN(1)
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

// popN returns the last n items, in the order of the stack. They are valid until
// the next push.
func (u *unpickler) popN(n int) ([]any, error) {
	k := len(u.stack) - n
	if k < u.base() {
		return nil, errors.New("the stack is empty")
	}
	items := u.stack[k:]
	u.stack = u.stack[:k]
	return items, nil
}

// popMark returns the items after the last mark, and removes it.
func (u *unpickler) popMark() ([]any, error) {
	if len(u.marks) == 0 {
		return nil, errors.New("there is no mark on the stack")
	}
	items, err := u.popN(len(u.stack) - u.base())
	u.marks = u.marks[:len(u.marks)-1]
	return items, err
}

// top returns the last item, and leaves it.
func (u *unpickler) top() (any, error) {
	v, err := u.pop()
	if err == nil {
		u.push(v)
	}
	return v, err
}

// integer returns a two's complement little-endian integer.
func integer(b []byte) any {
	if len(b) > 8 {
		return long(b)
	}
	var word [8]byte
	n := copy(word[:], b)
	if n > 0 && b[n-1]&0x80 != 0 {
		for i := n; i < 8; i++ {
			word[i] = 0xff
		}
	}
	return int64(binary.LittleEndian.Uint64(word[:]))
}

// describe says what a value is, for an error.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return "a bool"
	case int64, long:
		return "an int"
	case float64:
		return "a float"
	case string:
		return "a string"
	case blob:
		return "bytes"
	case tuple:
		return fmt.Sprintf("a tuple of %d", len(v))
	case *list:
		return fmt.Sprintf("a list of %d", len(v.items))
	case *dict:
		return fmt.Sprintf("a dict with %d entries", len(v.entries))
	case global:
		return v.String()
	case *storage:
		return "a storage without a tensor"
	case *tensor:
		return "a tensor"
	}
	return fmt.Sprintf("a %T", v)
}

func floatOf(b []byte) float64 { return math.Float64frombits(binary.BigEndian.Uint64(b)) }
