// Package pickle reads Python's pickles of untrusted origin as data: nothing in them is
// called, imported or looked up. A call becomes an Object that says what would have been
// called with what, unless the reader knows how to make a value of its arguments.
//
// A library was rejected: github.com/nlpodyssey/gopickle 0.2.0 panics for pickles
// of a few bytes, allocates what lengths claim, and lets three classes pass that
// its caller cannot refuse.
package pickle

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxSize is the largest pickle in bytes, the limit that safetensors has for
	// headers.
	MaxSize = 100_000_000

	// usualSteps limits the time and the memory that a file takes: an opcode counts
	// as perOpcode steps, because it may leave a dict or an entry of the memo, some
	// hundred bytes; each element that it copies is one step more, elementSize bytes. A
	// tensor of torch.save takes some 35 opcodes that copy some 20 elements.
	usualSteps = 1 << 23
	perOpcode  = 2
	perObject  = 3 // more, because an Object takes a hundred bytes by itself

	// elementSize is the bytes of an element, and of a step of text that is kept or
	// compared.
	elementSize = 16

	// maxName is the most bytes in the name of a module or class.
	maxName = 1000
)

// An Unpickler interprets pickles of protocol 2 to 5. It has no stack but its own.
type Unpickler struct {
	// Call returns the value of a call of a known Global, or nil if it is unknown.
	// After an error the call becomes an Object, too, with that error.
	Call func(Global, Tuple) (any, error)

	// Persistent returns the value that a persistent id stands for. An error makes
	// it an Object.
	Persistent func(id any) (any, error)

	// Build reports whether a value that Call returned may be given attributes, which
	// are dropped. If it is nil, none may.
	Build func(v any) bool

	// MaxSteps is how many steps all pickles may take, see usualSteps.
	MaxSteps int

	r    *bufio.Reader
	left int64 // bytes that there are, and may be used
	pos  int64 // bytes used

	steps int // taken, in all pickles
	stack []any
	marks []int // heights of the stack
	memo  memo
}

// New returns an Unpickler of the size bytes of r that knows no persistent id,
// and no Global but OrderedDict and torch.Size. It reads through a bufio.Reader, that of the
// caller if r is one.
func New(r io.Reader, size int64) *Unpickler {
	return &Unpickler{
		Call:       func(Global, Tuple) (any, error) { return nil, nil },
		Persistent: func(any) (any, error) { return nil, errors.New("an unknown persistent id") },
		MaxSteps:   usualSteps,
		r:          bufio.NewReader(r),
		left:       min(size, MaxSize),
	}
}

// Pos returns how many bytes the pickles took so far.
func (u *Unpickler) Pos() int64 { return u.pos }

// Charge counts n elements that are about to be copied, in Call for example. After an
// error Load fails.
func (u *Unpickler) Charge(n int) error {
	if u.steps += n; u.steps > u.MaxSteps {
		return fmt.Errorf("the pickle copies too much: it has more than %d opcodes, or elements that opcodes copy", u.MaxSteps/perOpcode)
	}
	return nil
}

// Load reads one pickle. A file may have several, one after another.
func (u *Unpickler) Load() (any, error) {
	u.stack, u.marks, u.memo = nil, nil, memo{}
	defer func() { u.stack, u.marks, u.memo = nil, nil, memo{} }()
	for {
		start := u.pos
		var op byte
		err := u.Charge(perOpcode)
		if err == nil {
			op, err = u.byte()
		}
		switch execute := opcodes[op]; {
		case err != nil:
		case op == opStop:
			var value any
			if value, err = u.pop(); err == nil {
				return value, nil
			}
		case execute == nil:
			err = fmt.Errorf("unknown opcode %#02x", op)
		default:
			err = execute(u)
		}
		if err == io.EOF { // the file ends where its size says that there is more
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, fmt.Errorf("the pickle, at byte %d: %w", start, err)
		}
	}
}

func (u *Unpickler) byte() (byte, error) {
	if u.left == 0 {
		return 0, fmt.Errorf("no byte is left: %w", io.ErrUnexpectedEOF)
	}
	b, err := u.r.ReadByte()
	if err == nil {
		u.left--
		u.pos++
	}
	return b, err
}

// take returns the next n bytes.
func (u *Unpickler) take(n uint64) ([]byte, error) {
	if n > uint64(u.left) {
		return nil, fmt.Errorf("%d bytes where at most %d are left: %w", n, u.left, io.ErrUnexpectedEOF)
	}
	u.left -= int64(n)
	u.pos += int64(n)
	const trusted = 1 << 20 // beyond it memory grows with what is there
	if n > trusted {
		var b bytes.Buffer
		_, err := io.CopyN(&b, u.r, int64(n))
		return b.Bytes(), err
	}
	b := make([]byte, n)
	_, err := io.ReadFull(u.r, b)
	return b, err
}

// number returns the next little-endian unsigned integer, of the given size in bytes.
func (u *Unpickler) number(bytes int) (n uint64, err error) {
	for i := range bytes {
		b, err := u.byte()
		if err != nil {
			return 0, err
		}
		n |= uint64(b) << (8 * i)
	}
	return n, nil
}

// line returns the bytes up to the next newline.
func (u *Unpickler) line() (string, error) {
	var b []byte
	for len(b) < maxName {
		c, err := u.byte()
		if err != nil {
			return "", err
		}
		if c == '\n' {
			return string(b), nil
		}
		b = append(b, c)
	}
	return "", longName(string(b))
}

func longName(name string) error {
	return fmt.Errorf("a name of more than %d bytes: %.200q", maxName, name)
}

func (u *Unpickler) push(v any) error {
	u.stack = append(u.stack, v)
	return nil
}

// pushValue pushes v unless there is an error.
func (u *Unpickler) pushValue(v any, err error) error {
	if err != nil {
		return err
	}
	return u.push(v)
}

func (u *Unpickler) pushObject(o *Object) error { return u.pushValue(o, u.Charge(perObject)) }

// base is the height below which the last mark protects the stack.
func (u *Unpickler) base() int {
	if len(u.marks) == 0 {
		return 0
	}
	return u.marks[len(u.marks)-1]
}

func (u *Unpickler) pop() (any, error) {
	items, err := u.popN(1)
	if err != nil {
		return nil, err
	}
	return items[0], nil
}

// popN returns the last n items, in the order of the stack. They are valid until
// the next push.
func (u *Unpickler) popN(n int) ([]any, error) {
	k := len(u.stack) - n
	if k < u.base() {
		return nil, errors.New("the stack is empty")
	}
	items := u.stack[k:]
	u.stack = u.stack[:k]
	return items, nil
}

// popMark returns the items after the last mark, and removes it.
func (u *Unpickler) popMark() ([]any, error) {
	if len(u.marks) == 0 {
		return nil, errors.New("there is no mark on the stack")
	}
	items, err := u.popN(len(u.stack) - u.base())
	u.marks = u.marks[:len(u.marks)-1]
	return items, err
}

// top returns the last item, and leaves it.
func (u *Unpickler) top() (any, error) {
	v, err := u.pop()
	if err == nil {
		u.push(v)
	}
	return v, err
}
