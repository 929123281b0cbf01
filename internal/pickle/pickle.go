// Package pickle reads Python's pickles of untrusted origin as data: nothing in them is called,
// imported or looked up. A call becomes an Object that records which function would have been
// called with which arguments, unless the reader knows how to make a value of the arguments.
//
// The library github.com/nlpodyssey/gopickle 0.2.0 was rejected: it panics for pickles of a few
// bytes, allocates as many bytes as a length claims, and executes three classes that its caller
// cannot refuse.
package pickle

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

const (
	// MaxSize is the size in bytes of the largest pickle that is read. It equals the limit of
	// safetensors for headers.
	MaxSize = 100_000_000

	// usualSteps limits the time and the memory that a file can take. An opcode counts as perOpcode
	// steps, because it may leave a dict or an entry of the memo, which take on the order of a
	// hundred bytes. Each element that an opcode copies takes elementSize bytes, and counts as one
	// more step. A tensor of torch.save takes about 35 opcodes, which copy about 20 elements.
	usualSteps = 1 << 23
	perOpcode  = 2
	perObject  = 3 // additional steps, because an Object takes a hundred bytes by itself

	// elementSize is the number of bytes of an element. Text that is kept or compared counts as one
	// step for as many bytes.
	elementSize = 16

	// maxName is the largest number of bytes in the name of a module or class.
	maxName = 1000
)

// An Unpickler interprets pickles of protocols 2 to 5. It keeps its own stack, and does not
// recurse, so that nesting cannot exhaust the stack of the goroutine.
type Unpickler struct {
	// Call returns the value of a call of a Global that it knows, or nil for any other. If it
	// returns an error, the call becomes an Object with that error.
	Call func(Global, Tuple) (any, error)

	// Persistent returns the value that a persistent id refers to. If it returns an error, the id
	// becomes an Object with that error.
	Persistent func(id any) (any, error)

	// Build reports whether a value that Call returned may be given a state, which is then dropped.
	// If Build is nil, no such value may be given one.
	Build func(v, state any) bool

	// MaxSteps limits the steps of all pickles together, see usualSteps.
	MaxSteps int

	r    *bufio.Reader
	left int64 // number of bytes that may still be read
	pos  int64 // number of bytes read so far

	steps int // number of steps that all pickles took so far
	stack []any
	marks []int // for each mark, the height of the stack when it was set
	memo  memo
}

// oldOpcodes are the opcodes that only pickles of the protocols 0 and 1 have. Those that the Unpickler
// executes nevertheless do not matter here.
const oldOpcodes = "FILPSVdgilop"

// New returns an Unpickler that reads at most size bytes of r. It knows no persistent id, and no
// Global except OrderedDict and torch.Size. It reads through a bufio.Reader, which is r itself if r
// is one that is large enough.
func New(r io.Reader, size int64) *Unpickler {
	return &Unpickler{
		Call:       func(Global, Tuple) (any, error) { return nil, nil },
		Persistent: func(any) (any, error) { return nil, errors.New("an unknown persistent id") },
		MaxSteps:   usualSteps,
		r:          bufio.NewReader(r),
		left:       min(size, MaxSize),
	}
}

// Pos returns how many bytes of r were read so far.
func (u *Unpickler) Pos() int64 { return u.pos }

// Charge counts n elements that are about to be copied, for example in Call. After it has returned
// an error, Load also fails.
func (u *Unpickler) Charge(n int) error {
	if u.steps += n; u.steps > u.MaxSteps {
		return fmt.Errorf("the pickle copies too much: it has more than %d opcodes, or elements that opcodes copy", u.MaxSteps/perOpcode)
	}
	return nil
}

// Steps returns the number of steps that all pickles took so far, see usualSteps.
func (u *Unpickler) Steps() int { return u.steps }

// Load reads the next pickle and returns its value. A file may contain several pickles, one after
// another.
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
		case execute == nil && strings.IndexByte(oldOpcodes, op) >= 0:
			err = fmt.Errorf("opcode %q of the protocols 0 and 1; only pickles of protocol 2 and later are read", op)
		case execute == nil:
			err = fmt.Errorf("unknown opcode %#02x", op)
		default:
			err = execute(u)
		}
		if err == io.EOF { // r ends before size bytes
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

// take reads the next n bytes.
func (u *Unpickler) take(n uint64) ([]byte, error) {
	if n > uint64(u.left) {
		return nil, fmt.Errorf("%d bytes where at most %d are left: %w", n, u.left, io.ErrUnexpectedEOF)
	}
	u.left -= int64(n)
	u.pos += int64(n)
	if err := u.Charge(int(n / elementSize)); err != nil {
		return nil, err
	}
	const trusted = 64 << 10 // number of bytes that are allocated at once; more memory is allocated only for bytes that exist
	b := make([]byte, min(n, trusted))
	for done := 0; ; {
		if _, err := io.ReadFull(u.r, b[done:]); err != nil || uint64(len(b)) == n {
			return b, err
		}
		done = len(b)
		more := make([]byte, min(n, 4*uint64(len(b))))
		copy(more, b)
		b = more
	}
}

// number reads a little-endian unsigned integer of this size in bytes.
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

// line reads a line and returns it without the newline.
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

// pushValue pushes v if err is nil. Otherwise it returns err.
func (u *Unpickler) pushValue(v any, err error) error {
	if err != nil {
		return err
	}
	return u.push(v)
}

func (u *Unpickler) pushObject(o *Object) error { return u.pushValue(o, u.Charge(perObject)) }

// base returns the height of the stack at the last mark. Items below it cannot be popped.
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

// popN pops the last n items, and returns them in the order of the stack. They are valid until the
// next push.
func (u *Unpickler) popN(n int) ([]any, error) {
	k := len(u.stack) - n
	if k < u.base() {
		return nil, errors.New("the stack is empty")
	}
	items := u.stack[k:]
	u.stack = u.stack[:k]
	return items, nil
}

// popMark pops the items after the last mark, and the mark itself.
func (u *Unpickler) popMark() ([]any, error) {
	if len(u.marks) == 0 {
		return nil, errors.New("there is no mark on the stack")
	}
	items, err := u.popN(len(u.stack) - u.base())
	u.marks = u.marks[:len(u.marks)-1]
	return items, err
}

// top returns the last item without removing it.
func (u *Unpickler) top() (any, error) {
	v, err := u.pop()
	if err == nil {
		u.push(v)
	}
	return v, err
}
